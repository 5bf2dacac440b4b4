"""Special tokens that only the tokenizer config declares are one token each.

The ids are those of transformers 5.24, PreTrainedTokenizerFast.from_pretrained.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from ster.checkpoint.tokenizer import load_encoder
from ster.checkpoint.tokenizer_config import read_tokenizer_config
from ster.errors import TokenizerError
from tests.light import Folder, Notes

# Ids 0 to 19, then the one added token, 20; what is declared follows.
LETTERS = [*"<|>uahi/sbcxyz 0123", "<sp>"]
U, A = "<|u|>", "<|a|>"
LSTRIP = {"__type": "AddedToken", "lstrip": True}


def checkpoint(folder: Path, config: object, legacy: object = None) -> Folder:
    vocab = {letter: token for token, letter in enumerate(dict.fromkeys(LETTERS))}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.add_special_tokens(["<x>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if legacy is not None:
        (folder / "special_tokens_map.json").write_text(json.dumps(legacy))
    return Folder(folder)


@pytest.mark.parametrize(
    ("config", "legacy", "text", "ids"),
    [
        ({"additional_special_tokens": [U, A]}, None, f"{U}hi{A}", [21, 5, 6, 22]),
        ({"extra_special_tokens": [U, A]}, None, f"{U}hi{A}", [21, 5, 6, 22]),
        (
            {"extra_special_tokens": {"u_token": U, "a_token": A}},
            None,
            f"{U}hi{A}",
            [21, 5, 6, 22],
        ),
        (
            {"additional_special_tokens": [{"content": U, **LSTRIP}, A]},
            None,
            f"hi {U}hi{A}",
            [5, 6, 21, 5, 6, 22],
        ),
        (
            {
                "added_tokens_decoder": {
                    "40": {"content": U, "special": True},
                    "30": {"content": A, "special": False},
                }
            },
            None,
            f"{U}hi{A}",
            [22, 5, 6, 21],
        ),
        (
            {
                "added_tokens_decoder": {
                    "40": {"content": U, "special": True, "lstrip": True},
                    "30": {"content": A, "special": False},
                },
                "additional_special_tokens": [A, "<u>"],
                "bos_token": "<s>",
                "pad_token": "<b>",
            },
            None,
            f"hi {U}hi{A}<u><s><b>",
            [5, 6, 22, 5, 6, 21, 25, 23, 24],
        ),
        (
            {"eos_token": "</s>", "bos_token": "<s>", "image_token": "<c>"},
            None,
            "<s>hi</s><c>",
            [21, 5, 6, 22, 23],
        ),
        ({"additional_special_tokens": ["<sp>"]}, None, "hi<sp>", [5, 6, 19]),
        (
            {
                "added_tokens_decoder": {
                    "20": {"content": "<x>", "special": True, "lstrip": True}
                }
            },
            None,
            "hi <x>",
            [5, 6, 20],
        ),
        (
            {},
            {"bos_token": "<s>", "additional_special_tokens": [U]},
            f"<s>hi{U}",
            [21, 5, 6, 22],
        ),
        (
            {"added_tokens_decoder": {"30": {"content": A, "special": True}}},
            {"bos_token": "<s>"},
            f"<s>hi{A}",
            [0, 8, 2, 5, 6, 21],
        ),
        (
            {"bos_token": {"content": "<s>", **LSTRIP}, "unk_token": None},
            None,
            "hi <s>",
            [5, 6, 21],
        ),
    ],
)
@pytest.mark.parametrize("mode", ["auto", "off"])
def test_declared_tokens_have_the_ids_of_transformers(
    tmp_path, config, legacy, text, ids, mode
):
    encoder = load_encoder(checkpoint(tmp_path, config, legacy), mode, Notes())
    assert encoder.encode([text])[0].tolist() == ids


def test_a_template_writes_declared_tokens_as_one_each(tmp_path):
    template = U + "{{ messages[0].content }}" + A
    config = {"chat_template": template, "additional_special_tokens": [U, A]}
    encoder = load_encoder(checkpoint(tmp_path, config), "auto", Notes())
    assert encoder.encode(["hi"])[0].tolist() == [21, 5, 6, 22]


def test_special_declared_tokens_are_not_decoded(tmp_path):
    config = {
        "additional_special_tokens": [U],
        "added_tokens_decoder": {"9": {"content": A}},
    }
    encoder = load_encoder(checkpoint(tmp_path, config), "auto", Notes())
    (ids,) = encoder.encode([f"{U}hi{A}"])
    text = encoder.open_text()
    assert "".join([*map(text.add, ids), text.rest()]).replace(" ", "") == f"hi{A}"


@pytest.mark.parametrize(
    ("config", "cause"),
    [
        (
            {"additional_special_tokens": 3},
            "`additional_special_tokens` is not a list of tokens",
        ),
        (
            {"additional_special_tokens": [U, None]},
            "`additional_special_tokens` is not a list of tokens",
        ),
        ({"added_tokens_decoder": [U]}, "`added_tokens_decoder` is not an object"),
        (
            {"added_tokens_decoder": {"a": {"content": U}}},
            "`added_tokens_decoder` is not an object of tokens",
        ),
        (
            {"added_tokens_decoder": {"1": U}},
            "`added_tokens_decoder` is not an object of tokens",
        ),
    ],
)
def test_declarations_that_are_none_are_refused(tmp_path, config, cause):
    files = checkpoint(tmp_path, config)
    with pytest.raises(TokenizerError) as refused:
        load_encoder(files, "auto", Notes())
    path = tmp_path / "tokenizer_config.json"
    assert refused.value.sentence == f"invalid tokenizer config {path}"
    assert refused.value.causes == (cause,)
    assert refused.value.path == str(path)


def test_the_last_of_a_repeated_key_counts_and_infinity_is_let_be(tmp_path):
    files = checkpoint(tmp_path, {})
    text = '\ufeff{"bos_token": "a", "model_max_length": Infinity, "bos_token": "b"}'
    (tmp_path / "tokenizer_config.json").write_text(text, encoding="utf-8")
    assert read_tokenizer_config(files).special_tokens() == {"bos_token": "b"}
