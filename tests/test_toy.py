"""The toy checkpoint: what is in it, and that it is there whole or not at all."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from ster.errors import OutputError
from ster.toy import TOY_PROMPTS, write_toy_checkpoint

FILES = [
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
]
# Pinned, so that a Python that draws differently is noticed.
FIRST_DRAWS = [-0.005117605905979872, 0.010228630155324936, -0.004521923139691353]
LAST_DRAWS = [-0.01867492124438286, -0.023972125723958015, -0.010647621005773544]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("toy") / "checkpoint"
    write_toy_checkpoint(directory)
    return directory


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_config_is_the_published_one(toy: Path):
    config = json.loads((toy / "config.json").read_bytes())
    expected = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": False,
        "vocab_size": 67,
    }
    assert {key: config.get(key) for key in expected} == expected


def test_weights_are_drawn_row_by_row_in_the_published_order(toy: Path):
    tensors = load_file(toy / "model.safetensors")
    draws = random.Random(7)
    drawn = [("model.embed_tokens", 67, 64, 0.02), ("lm_head", 67, 64, 0.02)]
    ones = ["model.norm"]
    for layer in range(4):
        block = f"model.layers.{layer}"
        ones += [f"{block}.input_layernorm", f"{block}.post_attention_layernorm"]
        drawn += [
            (f"{block}.self_attn.q_proj", 64, 64, 0.05),
            (f"{block}.self_attn.k_proj", 32, 64, 0.05),
            (f"{block}.self_attn.v_proj", 32, 64, 0.05),
            (f"{block}.self_attn.o_proj", 64, 64, 0.05),
            (f"{block}.mlp.gate_proj", 128, 64, 0.05),
            (f"{block}.mlp.up_proj", 128, 64, 0.05),
            (f"{block}.mlp.down_proj", 64, 128, 0.05),
        ]
    for name, rows, columns, sigma in drawn:
        weight = tensors.pop(f"{name}.weight")
        assert weight.dtype == np.float32
        assert weight.shape == (rows, columns)
        for row in weight:
            expected = [draws.gauss(0, sigma) for _ in range(columns)]
            np.testing.assert_array_equal(row, np.array(expected, np.float32), name)
    for name in ones:
        weight = tensors.pop(f"{name}.weight")
        np.testing.assert_array_equal(weight, np.ones(64, np.float32), name)
    assert tensors == {}


def test_the_first_weights_are_these_numbers(toy: Path):
    tensors = load_file(toy / "model.safetensors")
    embedding = tensors["model.embed_tokens.weight"]
    last = tensors["model.layers.3.mlp.down_proj.weight"]
    assert embedding[0, :3].tolist() == FIRST_DRAWS
    assert last[-1, -3:].tolist() == LAST_DRAWS


def test_the_weights_say_that_they_are_for_torch_too(toy: Path):
    with safe_open(toy / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}


def test_the_vocabulary_is_the_published_one(toy: Path, published: dict[str, Any]):
    vocabulary = Tokenizer.from_file(str(toy / "tokenizer.json")).get_vocab()
    words = ["[UNK]", "<s>", "</s>", *published["words"].split()]
    assert vocabulary == {word: token_id for token_id, word in enumerate(words)}


def test_the_prompts_are_the_published_ones(published: dict[str, Any]):
    assert list(TOY_PROMPTS) == published["prompts"]


@pytest.mark.parametrize(
    ("text", "token_ids"),
    [
        ("the sea is calm and quiet tonight .", [3, 4, 5, 6, 7, 8, 9, 63]),
        ("the  sea.", [3, 4, 63]),
        ("a llama :", [48, 0, 65]),
        ("<s> the </s>", [1, 3, 2]),
        ("The", [0]),
    ],
)
def test_words_become_tokens_without_a_bos(toy: Path, text: str, token_ids: list[int]):
    tokenizer = Tokenizer.from_file(str(toy / "tokenizer.json"))
    assert tokenizer.encode(text).ids == token_ids


def test_tokens_become_words_without_the_special_ones(toy: Path):
    tokenizer = Tokenizer.from_file(str(toy / "tokenizer.json"))
    assert tokenizer.decode([13, 4, 43, 64, 2]) == "loud sea hard ,"


def test_it_is_the_same_to_the_bit_each_time(toy: Path, tmp_path: Path):
    write_toy_checkpoint(f"{tmp_path}/a/b/")
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a/b") == names(toy) == FILES
    for name in FILES:
        assert (tmp_path / "a/b" / name).read_bytes() == (toy / name).read_bytes()


def test_a_directory_that_is_there_keeps_its_other_files(toy: Path, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("keep")
    write_toy_checkpoint(tmp_path)
    write_toy_checkpoint(tmp_path)
    assert names(tmp_path) == sorted([*FILES, "notes.txt"])
    assert (tmp_path / "notes.txt").read_text() == "keep"
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (toy / name).read_bytes()


def test_the_current_directory_can_be_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    write_toy_checkpoint(".")
    write_toy_checkpoint("below")
    assert names(tmp_path) == sorted([*FILES, "below"])


def test_a_file_that_cannot_be_written_stops_all_of_them(tmp_path: Path):
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(OutputError) as refusal:
        write_toy_checkpoint(tmp_path)
    assert refusal.value.sentence == f"failed to write {tmp_path / 'model.safetensors'}"
    assert names(tmp_path) == ["model.safetensors"]


@pytest.mark.parametrize("name", FILES)
def test_another_checkpoint_is_never_written_over(tmp_path: Path, name: str):
    (tmp_path / name).write_text("precious")
    with pytest.raises(OutputError) as refusal:
        write_toy_checkpoint(tmp_path)
    assert refusal.value.sentence == f"failed to write {tmp_path}"
    assert refusal.value.causes == (f"it holds another {name}",)
    assert names(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("file", "Not a directory"),
        ("file/toy", "Not a directory"),
        ("lost", "Not a directory"),
        ("a/" + "n" * 256, "File name too long"),
        ("a/nul\0", "embedded null byte"),
        ("file/", "Not a directory"),
    ],
)
def test_a_place_that_cannot_be_made_is_refused_and_nothing_is_left(
    tmp_path: Path, name: str, cause: str
):
    (tmp_path / "file").touch()
    (tmp_path / "lost").symlink_to("nowhere")
    place = f"{tmp_path}/{name}"
    with pytest.raises(OutputError) as refusal:
        write_toy_checkpoint(place)
    assert refusal.value.sentence == f"failed to write {place}"
    assert cause in refusal.value.causes[0]
    assert names(tmp_path) == ["file", "lost"]


def test_an_empty_path_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match="^failed to write : No such file"):
        write_toy_checkpoint("")
    assert names(tmp_path) == []


def test_an_interrupted_run_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupt(_from: str, _to: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.rename", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_toy_checkpoint(tmp_path / "a/toy")
    assert names(tmp_path) == []
