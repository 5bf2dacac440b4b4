"""A real model: the numbers, tokens and documents of SmolLM2-135M."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import numpy as np
import pytest
from safetensors.numpy import load_file

from ster import Activations, load
from ster.checkpoint.resolve import open_files
from ster.checkpoint.tokenizer import load_encoder
from ster.reporting import QuietReporter
from tests.real.facts import facts

MODES = ["auto", "off"]
TOLERANCE = 2e-5
MLX_TOLERANCE = 1e-4
# One prompt in a stream with hundreds of others: other shapes of the same products.
PACKING_TOLERANCE = 1e-5
RMS_NORM_EPS = 1e-5
# bf16 widens to f32 exactly, so the weights of both runs are the same numbers.
CONVERSION_TOLERANCE = 1e-6
# The golden rows are of f32 weights, which the bf16 file rounds by half of this at
# most. Rounding is no error of ster's: what the file itself says is tested above.
BF16_STEP = 2**-8
NOTE = "applying the model's own chat template to every prompt and completion"


def prompts_of(cases: list[dict[str, Any]]) -> list[str]:
    return [case["prompt"] for case in cases]


def rows_of(cases: list[dict[str, Any]], layers: list[int]) -> np.ndarray:
    """Stack the golden rows, (num_prompts, num_layers, hidden_size) f64."""
    return np.array([[case["layers"][str(i)] for i in layers] for case in cases])


def errors(rows: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Measure each layer's largest difference by its largest value, (num_layers,)."""
    difference = np.abs(rows.astype(np.float64) - expected).max(axis=(0, 2))
    relative: np.ndarray = difference / np.abs(expected).max(axis=(0, 2))
    return relative


@pytest.fixture(scope="module", params=MODES)
def rows(request, smollm2, golden):
    """Return a mode, its golden cases, and ster's rows for them on the cpu."""
    cases = golden[request.param]
    runtime = load(smollm2, chat_template=request.param)
    read = runtime.activations(prompts_of(cases), golden["layers"])
    return request.param, cases, read.array


@pytest.mark.parametrize("mode", MODES)
def test_prompts_become_the_tokens_of_transformers(smollm2, golden, mode):
    encoder = load_encoder(open_files(str(smollm2), None), mode, QuietReporter())
    cases = golden[mode]
    ids = encoder.encode(prompts_of(cases))
    assert [row.tolist() for row in ids] == [case["token_ids"] for case in cases]


def test_rows_on_the_cpu_are_those_of_transformers(rows, golden):
    _, cases, array = rows
    assert errors(array, rows_of(cases, golden["layers"])).max() <= TOLERANCE


def test_the_last_row_goes_through_norm_and_head_to_the_golden_next_token(
    rows, golden, smollm2
):
    assert golden["layers"][-1] == 29
    _, cases, array = rows
    tensors = load_file(smollm2 / "model.safetensors")
    last = array[:, -1].astype(np.float64)
    last /= np.sqrt((last**2).mean(axis=-1, keepdims=True) + RMS_NORM_EPS)
    head = tensors["model.embed_tokens.weight"]
    logits = (last * tensors["model.norm.weight"]).astype(np.float32) @ head.T
    assert logits.argmax(axis=1).tolist() == [case["next"] for case in cases]


def test_rows_through_mlx_are_those_of_transformers(smollm2, golden):
    cases = golden["auto"][:3]
    runtime = load(smollm2, device="mlx-cpu")
    read = runtime.activations(prompts_of(cases), golden["layers"])
    expected = rows_of(cases, golden["layers"])
    assert errors(read.array, expected).max() <= MLX_TOLERANCE


@pytest.fixture(scope="module")
def stored_bf16(make_smollm2: Callable[[str], Path]) -> Path:
    """Return the checkpoint with every weight rounded to bfloat16."""
    return make_smollm2("bf16")


@pytest.fixture
def widened(stored_bf16: Path, tmp_path: Path) -> Path:
    """Return a checkpoint of f32 weights: those of the bf16 file, as MLX reads them."""
    skipped = shutil.ignore_patterns("*.safetensors")
    copy = shutil.copytree(stored_bf16, tmp_path / "widened", ignore=skipped)
    tensors = cast(
        "dict[str, mx.array]", mx.load(str(stored_bf16 / "model.safetensors"))
    )
    wide = {name: tensor.astype(mx.float32) for name, tensor in tensors.items()}
    mx.save_safetensors(str(copy / "model.safetensors"), wide)
    return copy


def test_a_bf16_file_gives_the_rows_of_its_values_widened_to_f32(
    stored_bf16, widened, golden
):
    prompts = prompts_of(golden["auto"])
    stored = load(stored_bf16).activations(prompts).array
    wide = load(widened).activations(prompts).array
    assert errors(stored, wide).max() <= CONVERSION_TOLERANCE


@pytest.mark.parametrize("mode", MODES)
def test_a_bf16_file_stays_near_the_golden_rows_of_f32_weights(
    stored_bf16, golden, mode
):
    cases = golden[mode]
    runtime = load(stored_bf16, chat_template=mode)
    read = runtime.activations(prompts_of(cases), golden["layers"])
    expected = rows_of(cases, golden["layers"])
    assert errors(read.array, expected).max() <= BF16_STEP


def test_hundreds_of_facts_extract_in_one_run(smollm2, tmp_path):
    prompts = facts()
    source, output = tmp_path / "prompts.json", tmp_path / "facts.json"
    source.write_text(json.dumps({"prompts": prompts}))
    words = ["--model", smollm2, "--input", source, "--output", output]
    run = subprocess.run(
        [sys.executable, "-m", "ster", "extract", *words],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    count = len(prompts)
    every = [f"extracting prompt {n}/{count}" for n in range(1, count + 1)]
    *said, closing = run.stderr.splitlines()
    if closing.startswith(f"{count} prompts, "):  # it took five seconds or more
        # Of this process and not of its parent.
        assert int(closing.partition("peak ")[2].split()[0]) < 600
    else:
        said.append(closing)
    lines = said[1:]
    assert lines == [line for line in every if line in lines]  # in order
    assert (said[0], lines[0], lines[-1]) == (NOTE, every[0], every[-1])
    assert (run.returncode, run.stdout) == (0, f"{output}\n")
    document = Activations.load(output)
    assert document.array.shape == (count, 30, 576)
    assert list(document.prompts) == prompts
    runtime = load(smollm2)
    for row in (0, count - 1):
        alone = runtime.activations([document.prompts[row]])
        packed = document.array[row : row + 1]
        assert errors(packed, alone.array).max() <= PACKING_TOLERANCE


def test_rows_at_a_texts_own_tokens_are_those_of_transformers(smollm2, golden, device):
    runtime = load(smollm2, device=device)
    tolerance = TOLERANCE if device == "cpu" else MLX_TOLERANCE
    cases = golden["tokens"]
    for case in cases:
        shown = runtime.show(case["prompt"])
        assert shown.tokens.token_id.tolist() == case["token_ids"]
        assert np.flatnonzero(~shown.tokens.in_template).tolist() == case["own"]
        assert case["rows"].keys() == cases[0]["rows"].keys()
    for tokens in cases[0]["rows"]:
        read = runtime.activations(prompts_of(cases), golden["layers"], tokens=tokens)
        for row, case in zip(read, cases, strict=True):
            expected = np.array([case["rows"][tokens]])
            assert errors(row[None], expected).max() <= tolerance, tokens


def test_points_inside_blocks_are_those_of_transformers(smollm2, golden, device):
    runtime = load(smollm2, device=device)
    tolerance = TOLERANCE if device == "cpu" else MLX_TOLERANCE
    case = golden["points"]
    points = [*case["rows"]]
    assert sorted(points) == ["attn_out", "mlp_out", "resid_mid"]
    read = runtime.activations([case["prompt"]], golden["layers"], points=points)
    for point, rows in case["rows"].items():
        got = read.at_point(point).array
        assert errors(got, np.array([rows])).max() <= tolerance, point
