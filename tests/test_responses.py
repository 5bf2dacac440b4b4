"""Whole responses: an assistant's turn alone, or after a user's where it has to be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ster.checkpoint.encoder import Encoder
from ster.checkpoint.template.chat import DROPS_RESPONSE, TemplateRefusal
from ster.checkpoint.tokenizer import load_encoder
from ster.errors import PromptError, TemplateError
from tests.checkpoints import word_tokenizer
from tests.light import Folder, Notes

# w1 and w2 stand for the turns' heads.
TURNS = (
    "{% for m in messages %}{{ 'w1' if m.role == 'user' else 'w2' }} {{ m.content }} "
    "{% endfor %}"
)
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}" + TURNS
)
NO_EMPTY = (
    "{% if not messages[0].content %}{{ raise_exception('empty') }}{% endif %}"
    + ALTERNATING
)


def encoder(folder: Path, template: str | None) -> Encoder:
    word_tokenizer(60).save(str(folder / "tokenizer.json"))
    if template is not None:
        config = {"chat_template": template}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return load_encoder(Folder(folder), "auto", Notes())


def raw(folder: Path, text: str) -> list[int]:
    return encoder(folder, None).encode([text])[0].tolist()


def test_an_assistants_turn_stands_alone_where_the_template_allows(tmp_path):
    got = encoder(tmp_path, TURNS).encode_responses(["w7", "w8 w9"])
    (tmp_path / "tokenizer_config.json").unlink()
    assert [ids.tolist() for ids in got.token_ids] == [
        raw(tmp_path, "w2 w7"),
        raw(tmp_path, "w2 w8 w9"),
    ]
    assert got.forms == ("alone", "alone")
    assert got.starts == (1, 1)


@pytest.mark.parametrize(
    ("template", "alone", "form"),
    [
        (TURNS, "w2 w8", "alone"),
        (ALTERNATING, "w1 w2 w8", "after empty user turn"),
    ],
)
def test_a_response_follows_its_own_prompt_whatever_the_others_do(
    tmp_path, template, alone, form
):
    got = encoder(tmp_path, template).encode_responses(["w7", "w8"], ["w5", None])
    (tmp_path / "tokenizer_config.json").unlink()
    assert [ids.tolist() for ids in got.token_ids] == [
        raw(tmp_path, "w1 w5 w2 w7"),
        raw(tmp_path, alone),
    ]
    assert got.forms == ("after prompt", form)


def test_responses_take_one_form_even_where_only_one_is_refused(tmp_path):
    source = (
        "{% if messages[0].content == 'w8' %}{{ raise_exception('no') }}{% endif %}"
    )
    got = encoder(tmp_path, source + TURNS).encode_responses(["w7", "w8"])
    assert got.forms == ("after empty user turn",) * 2


def test_raw_responses_are_their_text(tmp_path):
    got = encoder(tmp_path, None).encode_responses(["w7"])
    assert got.token_ids[0].tolist() == raw(tmp_path, "w7")
    assert (got.forms, got.starts) == (("alone",), (1,))


def test_one_response_is_encoded_as_many_are(tmp_path):
    encodes = encoder(tmp_path, ALTERNATING)
    many = encodes.encode_responses(["w7"]).token_ids[0].tolist()
    assert encodes.encode_response("w7") == many
    assert encodes.encode_responses([]).token_ids == []


def test_what_is_refused_in_every_form_names_the_way_out(tmp_path):
    with pytest.raises(TemplateError) as refused:
        encoder(tmp_path, NO_EMPTY).encode_responses(["w7", "w8"], ["w5", None])
    sentence = "this model's chat template failed to render: empty"
    assert (refused.value.sentence, refused.value.prompt) == (sentence, 2)
    assert "roles must alternate" in refused.value.causes[0]
    assert "--chat-template off" in refused.value.causes[1]
    assert not isinstance(refused.value, TemplateRefusal)


def test_a_template_that_drops_the_response_is_refused(tmp_path):
    source = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}"
    with pytest.raises(TemplateError) as refused:
        encoder(tmp_path, source + "{% endif %}{% endfor %}").encode_responses(["w7"])
    assert refused.value.sentence == DROPS_RESPONSE


def test_as_many_prompts_as_responses_are_needed(tmp_path):
    with pytest.raises(PromptError, match="2 responses cannot answer 1 prompts"):
        encoder(tmp_path, TURNS).encode_responses(["w7", "w8"], ["w5"])


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("a\ud800", "has a lone surrogate (U+D800), which is no character"),
        (None, "is no text but NoneType"),
        (3, "is no text but int"),
        (b"x", "is no text but bytes"),
    ],
)
@pytest.mark.parametrize("template", [TURNS, None])
def test_what_is_no_text_is_refused_with_its_number(tmp_path, template, text, detail):
    encodes = encoder(tmp_path, template)
    for method in (encodes.encode, encodes.encode_responses):
        with pytest.raises(PromptError) as refused:
            method(["w5", text])
        sentence = f"failed to tokenize prompt: prompt 2 {detail}"
        assert (refused.value.sentence, refused.value.prompt) == (sentence, 2)
