"""Quantized checkpoints against the numbers that their packed bits stand for.

``test_golden.py`` and ``test_answers.py`` run them too, against transformers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import ster
from tests.checkpoints import (
    Checkpoint,
    make_config,
    make_tensors,
    random_ids,
    write_checkpoint,
    write_weights,
)
from tests.conformance.answering import continue_greedily
from tests.conformance.compare import assert_close, tolerance
from tests.conformance.running import FEW, force_streaming, force_waves, rows_of
from tests.golden.golden import read_golden
from tests.golden.quantized_cases import (
    AFFINE,
    QUANTIZED_CASES,
    affine,
    fp,
    quantized,
)
from tests.packed_draws import format_of
from tests.quantized import as_published, open_mlx, plain_twin
from tests.reference import last_rows

FORMATS = {f"affine-{bits}-{group}": affine(bits, group) for bits, group in AFFINE}
FORMATS |= {mode: fp(mode) for mode in ("mxfp4", "mxfp8", "nvfp4")}
MLX_CASES = [name for name in QUANTIZED_CASES if name.startswith("q-")]
EXPERTS = ("qwen2_moe", "qwen3_moe", "mixtral", "gpt_oss")


def truth(made: Checkpoint) -> np.ndarray:
    """Ask the oracle for the rows of the plain checkpoint."""
    config, tensors = plain_twin(made.config, made.tensors)
    return np.stack([last_rows(config, tensors, prompt) for prompt in FEW])


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_gives_the_rows_of_the_numbers_that_it_stands_for(
    tmp_path: Path, device: str, format: str
):
    config = quantized("llama", FORMATS[format], num_hidden_layers=1)
    made = write_checkpoint(tmp_path, config, dtype="bf16")
    rows = rows_of(made, device=device)
    assert_close(rows, truth(made), tolerance(device, "f32"))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(
    "name", ["q-tied-some", "q-modes", "q-qwen3-moe", "q-gpt-oss", "fp8-qwen3-moe"]
)
def test_scales_may_be_of_any_width(tmp_path: Path, device: str, name: str, dtype: str):
    config, _ = QUANTIZED_CASES[name]
    made = write_checkpoint(tmp_path, config, dtype=dtype)
    rows = rows_of(made, device=device)
    assert_close(rows, truth(made), tolerance(device, "f32"))


@pytest.mark.parametrize("name", QUANTIZED_CASES)
def test_streamed_weights_in_waves_of_two_give_the_rows_of_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, device: str
):
    golden = read_golden(name)
    made = write_checkpoint(tmp_path, golden.config, seed=golden.seed, shards=2)
    resident = rows_of(made, golden.prompts, device=device)
    force_streaming(monkeypatch, device)
    assert np.array_equal(rows_of(made, golden.prompts, device=device), resident)
    force_waves(monkeypatch, 2)
    rows = rows_of(made, golden.prompts, device=device)
    assert_close(rows, golden.residuals, tolerance(device, "f32"))


@pytest.mark.parametrize("name", QUANTIZED_CASES)
def test_a_prompt_alone_has_the_rows_that_it_has_among_others(
    tmp_path: Path, name: str, device: str
):
    golden = read_golden(name)
    made = write_checkpoint(tmp_path, golden.config, seed=golden.seed)
    alone = [rows_of(made, [prompt], device=device) for prompt in golden.prompts]
    near = tolerance(device, "f32")
    assert_close(np.concatenate(alone), golden.residuals, near)


@pytest.mark.parametrize("name", QUANTIZED_CASES)
def test_a_continuation_has_the_logits_of_the_whole_text_read_anew(
    tmp_path: Path, name: str, device: str
):
    golden = read_golden(name)
    write_checkpoint(tmp_path, golden.config, seed=golden.seed)
    runtime, prompt = ster.load(tmp_path, device=device), random_ids(6)
    tokens, logits = continue_greedily(runtime, prompt, 8)
    texts = [[*prompt, *tokens[:count]] for count in range(8)]
    anew = np.stack([continue_greedily(runtime, each)[1] for each in texts])
    near = tolerance(device, "f32")
    assert_close(logits[:, None], anew.astype(np.float64), near)


@pytest.mark.parametrize("name", QUANTIZED_CASES)
def test_a_quantized_case_is_the_one_that_its_file_was_made_of(name: str):
    assert read_golden(name).config == QUANTIZED_CASES[name][0]


@pytest.mark.parametrize("name", MLX_CASES)
def test_packed_bits_are_worth_here_what_mlx_says_they_are(name: str):
    config, _ = QUANTIZED_CASES[name]
    packed = make_tensors(config)
    opened = open_mlx(config, packed)
    seen = 0
    for weight, values in opened.items():
        module = weight.removesuffix(".weight")
        if f"{module}.scales" not in packed:
            continue
        how = format_of(config, module, values.shape[-1])
        assert how is not None
        biases = packed.get(f"{module}.biases")
        kind: dict[str, Any] = {} if how.mode == "affine" else {"dtype": mx.float32}
        theirs = mx.dequantize(
            mx.array(packed[weight]),
            mx.array(packed[f"{module}.scales"]),
            None if biases is None else mx.array(biases),
            group_size=how.group_size,
            bits=how.bits,
            mode=how.mode,
            **kind,
        )
        largest = np.abs(values).max()
        assert np.abs(np.array(theirs) - values).max() <= 2e-7 * largest
        seen += 1
    assert seen


# Groups that fit no matrix: all are left as they are.
NONE_FITS = {"group_size": 1 << 20, "bits": 4}


@pytest.mark.parametrize("family", EXPERTS)
def test_plain_experts_under_the_names_of_mlx_lm_are_those_of_transformers(
    tmp_path: Path, device: str, family: str
):
    config = make_config(family)
    tensors = make_tensors(config | {"quantization": NONE_FITS})
    theirs = write_checkpoint(tmp_path / "mlx", config, tensors=tensors)
    ours = as_published(config, tensors)
    published = write_checkpoint(tmp_path / "published", config, tensors=ours)
    rows = rows_of(published, device=device)
    assert_close(rows, rows_of(theirs, device=device).astype(np.float64), 1e-6)
    assert_close(rows, truth(published), tolerance(device, "f32"))


# How the files of a text model in a wrapper name its modules, as of transformers 4 and
# 5. What config.json says of a module is under the name that the file has for it.
WRAPPERS = {
    "v4": ("language_model.model.", "language_model.lm_head."),
    "v5": ("model.language_model.", "lm_head."),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize(
    ("outer_type", "inner_type"),
    [("gemma3", "gemma3_text"), ("mistral3", "ministral3")],
)
def test_a_wrappers_modules_go_by_the_names_that_its_file_has_for_them(
    tmp_path: Path, device: str, wrapper: str, outer_type: str, inner_type: str
):
    own: dict[str, Any] = {"model.layers.0.self_attn.v_proj": affine(8, 32)}
    own |= {"model.layers.1.mlp.up_proj": False, "lm_head": affine(6, 128)}
    declared = affine(4, 64) | own
    config = quantized(inner_type, declared, tie_word_embeddings=False, head_dim=32)
    tensors = make_tensors(config)
    twin, plain = plain_twin(config, tensors)
    expected = write_checkpoint(tmp_path / "plain", twin, tensors=plain)
    prefix, head = WRAPPERS[wrapper]

    def rename(name: str) -> str:
        if name.startswith("lm_head"):
            return head + name.removeprefix("lm_head").removeprefix(".")
        return name.replace("model.", prefix, 1)

    made = write_checkpoint(tmp_path / "wrapped", config, tensors=tensors)
    (made.directory / "model.safetensors").unlink()
    write_weights(made.directory, {rename(name): t for name, t in tensors.items()})
    outer = {
        "model_type": outer_type,
        "text_config": twin,
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 4},
        "quantization": {
            rename(name).rstrip("."): each for name, each in declared.items()
        },
    }
    (made.directory / "config.json").write_text(json.dumps(outer))
    rows = rows_of(made, device=device)
    near = tolerance(device, "f32")
    assert_close(rows, rows_of(expected, device=device).astype(np.float64), near)
    answers = [
        continue_greedily(ster.load(each.directory, device=device), FEW[1], 4)
        for each in (made, expected)
    ]
    assert answers[0][0] == answers[1][0]
    logits = [logits for _, logits in answers]
    assert_close(logits[0][None], logits[1][None].astype(np.float64), near)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_a_wrapper_may_be_quantized_as_mlx_vlm_writes_it(
    tmp_path: Path, device: str, tied: bool
):
    """All of the text model at 4 bits, declared twice, and the vision part left."""
    declared = affine(4, 64)
    config = quantized(
        "ministral3", declared, tie_word_embeddings=tied, hidden_size=64, head_dim=16
    )
    tensors = make_tensors(config)
    assert "model.embed_tokens.scales" in tensors
    twin, plain = plain_twin(config, tensors)
    expected = write_checkpoint(tmp_path / "plain", twin, tensors=plain)
    made = write_checkpoint(tmp_path / "wrapped", config, tensors=tensors)
    (made.directory / "model.safetensors").unlink()
    named = {f"language_model.{name}": each for name, each in tensors.items()}
    named["vision_tower.ln_pre.weight"] = np.ones(4, np.float32)
    write_weights(made.directory, named)
    outer = {
        "model_type": "mistral3",
        "text_config": twin,
        "vision_config": {"model_type": "pixtral", "hidden_size": 4},
        "quantization": declared,
        "quantization_config": declared,
    }
    (made.directory / "config.json").write_text(json.dumps(outer))
    near = tolerance(device, "f32")
    rows = rows_of(made, device=device)
    assert_close(rows, rows_of(expected, device=device).astype(np.float64), near)
    logits = [
        continue_greedily(ster.load(each.directory, device=device), FEW[1], 4)[1]
        for each in (made, expected)
    ]
    assert_close(logits[0][None], logits[1][None].astype(np.float64), near)
