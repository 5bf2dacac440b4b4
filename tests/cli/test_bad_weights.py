"""Weight files that are damaged, missing or do not fit, at the command line."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.cli.user import ABSENT, PROGRESS, User

TENSOR = "model.layers.1.mlp.up_proj.weight"
SHARD = "model.safetensors"


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.h5", "model.pth"])
def test_weights_of_another_format_are_named(user: User, name):
    (user.folder / "toy" / SHARD).rename(f"toy/{name}")
    cause = f"only safetensors are read, and what is there is {name}"
    user.is_refused("model directory contains no safetensors weights", cause)


def test_an_optimizer_is_no_weight_file(user: User):
    (user.folder / "toy" / SHARD).rename("toy/optimizer.safetensors")
    user.is_refused("model directory contains no safetensors weights")


@pytest.mark.parametrize(
    "damage",
    {
        "empty": lambda data: b"",
        "seven bytes": lambda data: data[:7],
        "a cut header": lambda data: data[:100],
        "a header only": lambda data: data[: 8 + int.from_bytes(data[:8], "little")],
        "cut data": lambda data: data[:-1],
        "bytes too many": lambda data: data + b"x",
        "a huge header": lambda data: (2**40).to_bytes(8, "little") + data[8:],
        "a header past i64": lambda data: b"\xff" * 8 + data[8:],
        "zeros": lambda data: bytes(len(data)),
        "broken JSON": lambda data: data[:8] + b"[" + data[9:],
        "a pickle": lambda data: b"PK\x03\x04" + data[4:],
        "text": lambda data: b"<html>Not Found</html>",
    }.values(),
)
def test_a_damaged_weight_file_is_named(user: User, damage):
    path = user.folder / "toy" / SHARD
    path.write_bytes(damage(path.read_bytes()))
    causes = f"{SHARD} is damaged or cannot be read", ...
    user.is_refused("failed to map 1 model weight files", *causes, said=ABSENT)


def test_weights_of_gguf_are_named_with_the_way_out(user: User):
    (user.folder / "toy" / SHARD).rename("toy/model.gguf")
    cause = (
        "what is there is model.gguf; GGUF is llama.cpp's format; use the checkpoint "
        "that it was converted from, with its config.json and safetensors"
    )
    user.is_refused("model directory contains no safetensors weights", cause)


def test_a_pointer_in_place_of_weights_is_refused_before_a_prompt_is_encoded(
    user: User,
):
    user.write(f"toy/{SHARD}", b"version https://git-lfs.github.com/spec/v1\noid x\n")
    cause = (
        "it is a Git LFS pointer, not the file that it stands for; `git lfs pull` in "
        "its folder fetches that"
    )
    causes = f"{SHARD} is damaged or cannot be read", cause
    user.is_refused("failed to map 1 model weight files", *causes)


def of(name: str, change: Any) -> Any:
    """Make an edit of one tensor."""

    def edit(tensors: dict[str, Any]) -> None:
        tensors[name] = change(tensors[name])

    return edit


def adding(name: str) -> Any:
    return lambda tensors: tensors.update({name: np.zeros(64, np.float32)})


NO_PLACE = "is in the checkpoint, but config.json gives it no place"


@pytest.mark.parametrize(
    ("edit", "cause"),
    [
        (lambda tensors: tensors.pop(TENSOR), f"the tensor {TENSOR} is missing"),
        (
            lambda tensors: tensors.pop("model.embed_tokens.weight"),
            "the tensor model.embed_tokens.weight is missing",
        ),
        (
            of(TENSOR, lambda a: a[:, :32].copy()),
            f"the tensor {TENSOR} has shape [128, 32], expected [128, 64]",
        ),
        (
            of(TENSOR, lambda a: np.ascontiguousarray(a.T)),
            f"the tensor {TENSOR} has shape [64, 128], expected [128, 64]",
        ),
        (
            of(TENSOR, lambda a: a.reshape(1, 128, 64)),
            f"the tensor {TENSOR} has shape [1, 128, 64], expected [128, 64]",
        ),
        (
            of(TENSOR, lambda a: a[:0]),
            f"the tensor {TENSOR} has shape [0, 64], expected [128, 64]",
        ),
        (
            of(
                "model.layers.0.input_layernorm.weight", lambda a: a.sum(keepdims=False)
            ),
            (
                "the tensor model.layers.0.input_layernorm.weight has shape "
                "[], expected [64]"
            ),
        ),
        (
            of("model.embed_tokens.weight", lambda a: a[:66].copy()),
            (
                "the tensor model.embed_tokens.weight has shape [66, 64], "
                "expected [67, 64]"
            ),
        ),
        (
            of(TENSOR, lambda a: a.astype(np.int8)),
            f"the tensor {TENSOR} is stored as I8; Ster reads F32, F16, BF16",
        ),
        (
            of(TENSOR, lambda a: a.astype(np.float64)),
            f"the tensor {TENSOR} is stored as F64; Ster reads F32, F16, BF16",
        ),
        (
            adding("model.layers.0.self_attn.q_proj.bias"),
            f"the tensor model.layers.0.self_attn.q_proj.bias {NO_PLACE}",
        ),
        (
            adding("model.layers.3.mlp.down_proj.weight_scale"),
            f"the tensor model.layers.3.mlp.down_proj.weight_scale {NO_PLACE}",
        ),
        (
            adding("model.layers.2.\x1b[2J\x9b"),
            rf"the tensor model.layers.2.\u{{1b}}[2J\u{{9b}} {NO_PLACE}",
        ),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(user: User, edit, cause):
    user.weights(lambda tensors: _scalars_too(tensors, edit))
    user.is_refused("failed to map 1 model weight files", cause, said=ABSENT)


def _scalars_too(tensors: dict[str, Any], edit: Any) -> None:
    edit(tensors)
    tensors.update({name: np.asarray(value) for name, value in tensors.items()})


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"num_hidden_layers": 5}, "model.layers.4.input_layernorm.weight is missing"),
        ({"attention_bias": True}, "model.layers.0.self_attn.q_proj.bias is missing"),
        ({"mlp_bias": True}, "model.layers.0.mlp.gate_proj.bias is missing"),
        ({"model_type": "qwen2"}, "model.layers.0.self_attn.q_proj.bias is missing"),
        (
            {"num_key_value_heads": ...},
            "model.layers.0.self_attn.k_proj.weight has shape [32, 64], "
            "expected [64, 64]",
        ),
        (
            {"head_dim": 8},
            "model.layers.0.self_attn.q_proj.weight has shape [64, 64], "
            "expected [32, 64]",
        ),
    ],
)
def test_a_config_that_asks_for_other_weights_is_refused(user: User, changes, cause):
    user.config(**changes)
    sentence = "failed to map 1 model weight files"
    user.is_refused(sentence, f"the tensor {cause}", said=ABSENT)


def test_tensors_that_no_run_reads_may_be_there_or_not(user: User):
    def edit(tensors: dict[str, Any]) -> None:
        for name in ("lm_head.weight", "model.norm.weight", TENSOR):
            del tensors[name]
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(8)
        tensors["model.layers.77.anything"] = np.zeros(1, np.int8)

    user.weights(edit)
    assert user.runs("--layers", "0").code == 0


def test_two_files_with_the_same_tensor_are_refused(user: User):
    data = (user.folder / "toy" / SHARD).read_bytes()
    user.write("toy/copy.safetensors", data)
    cause = f"{SHARD} repeats the tensor lm_head.weight"
    user.is_refused("failed to map 2 model weight files", cause, said=ABSENT)


@pytest.mark.parametrize(
    ("index", "num_files", "causes"),
    [
        (b"", 1, ["no index", ...]),
        (b"[]", 1, ["no index", "it has no weight_map"]),
        ({}, 1, ["no index", "it has no weight_map"]),
        ({"weight_map": [SHARD]}, 1, ["no index", "it has no weight_map"]),
        (
            {"weight_map": {TENSOR: 1}},
            1,
            ["no index", f'it names no file for "{TENSOR}"'],
        ),
        (
            {"weight_map": {TENSOR: "../x.safetensors"}},
            1,
            [
                "no index",
                'it names "../x.safetensors", which is outside the checkpoint',
            ],
        ),
        (
            {"weight_map": {TENSOR: "/x.safetensors"}},
            1,
            ["no index", 'it names "/x.safetensors", which is outside the checkpoint'],
        ),
        (
            {"weight_map": {TENSOR: "pytorch_model.bin"}},
            1,
            [
                "no index",
                'it names "pytorch_model.bin", but only safetensors files are read',
            ],
        ),
        (
            {"weight_map": {"a": SHARD, "b": "b.safetensors"}},
            2,
            ["b.safetensors is missing"],
        ),
    ],
)
def test_an_index_that_cannot_be_right_is_refused(user: User, index, num_files, causes):
    name = "toy/model.safetensors.index.json"
    user.write(name, index if isinstance(index, bytes) else json.dumps(index))
    shown = [f"{name} is no weight index" if c == "no index" else c for c in causes]
    user.is_refused(f"failed to map {num_files} model weight files", *shown)


def fill(value: float) -> Any:
    return of(TENSOR, lambda a: np.full_like(a, value))


@pytest.mark.parametrize(
    ("edit", "precision", "layers", "sentence", "causes"),
    [
        (
            fill(np.nan),
            "f32",
            "all",
            "layer 1 of prompt 1 is not finite at --precision f32",
            ["the checkpoint's own weights lead there"],
        ),
        (
            fill(3e38),
            "f32",
            "0,2",
            "layer 2 of prompt 1 is not finite at --precision f32",
            ["the checkpoint's own weights lead there"],
        ),
        (
            fill(np.inf),
            "f16",
            "all",
            "layer 1 of prompt 1 is not finite at --precision f16; use f32",
            [],
        ),
        (
            fill(1e6),
            "f16",
            "3",
            "layer 3 of prompt 1 is not finite at --precision f16; use f32",
            [],
        ),
    ],
)
def test_a_result_that_is_not_finite_is_refused(
    user: User, edit, precision, layers, sentence, causes
):
    user.weights(edit)
    words = ("--precision", precision, "--layers", layers)
    user.is_refused(sentence, *causes, words=words, said=ABSENT + PROGRESS)


def test_f16_that_overflows_in_a_later_layer_only_is_read_before_it(user: User):
    user.weights(fill(np.inf))
    assert user.runs("--precision", "f16", "--layers", "0").code == 0
