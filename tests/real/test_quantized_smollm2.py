"""A real model as mlx-lm quantizes it, against a plain file of the same numbers.

What a plain file gives is held to transformers in ``test_smollm2.py``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from ster import load
from tests.checkpoints import Tensors, write_weights

# Of a layer's largest value: 30 layers, and products of other shapes on MLX.
NEAR = {"cpu": 1e-5, "mlx": 1e-4}
CONVERT_SECONDS = 240
HOW = [(4, "float32"), (8, "bfloat16")]


@pytest.fixture(scope="module", params=HOW, ids=[f"{b} bits {d}" for b, d in HOW])
def both(
    request: pytest.FixtureRequest,
    smollm2: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Path]:
    """Return the folder that mlx-lm wrote, and a plain one of the same numbers."""
    bits, dtype = request.param
    folder = tmp_path_factory.mktemp("quantized")
    quantized, plain = folder / "quantized", folder / "plain"
    line = [sys.executable, "-m", "mlx_lm", "convert", "--quantize"]
    line += ["--hf-path", str(smollm2), "--mlx-path", str(quantized)]
    line += ["--q-bits", str(bits), "--q-group-size", "64", "--dtype", dtype]
    subprocess.run(line, check=True, timeout=CONVERT_SECONDS, capture_output=True)
    shutil.copytree(
        quantized, plain, ignore=shutil.ignore_patterns("*.safetensors", "*.index.json")
    )
    config = json.loads((plain / "config.json").read_text())
    how = config.pop("quantization")
    del config["quantization_config"]
    (plain / "config.json").write_text(json.dumps(config))
    write_weights(plain, opened(quantized / "model.safetensors", how))
    return quantized, plain


def opened(path: Path, how: dict[str, Any]) -> Tensors:
    """Return all weights of a file as MLX dequantizes them, in f32."""
    stored: Any = mx.load(str(path))
    plain: Tensors = {}
    for name, values in stored.items():
        module, _, kind = name.rpartition(".")
        if kind in ("scales", "biases"):
            continue
        if f"{module}.scales" in stored:
            scale, bias = (
                stored[f"{module}.{each}"].astype(mx.float32)
                for each in ("scales", "biases")
            )
            values = mx.dequantize(
                values, scale, bias, group_size=how["group_size"], bits=how["bits"]
            )
        plain[name] = np.array(values.astype(mx.float32))
    assert len(plain) < len(stored) / 2
    return plain


def prompts_of(golden: dict[str, Any]) -> list[str]:
    return [case["prompt"] for case in golden["auto"]]


def test_a_quantized_model_gives_the_rows_of_a_plain_one_of_the_same_numbers(
    both: tuple[Path, Path], golden: dict[str, Any], device: str
):
    # MLX's own cpu backend is slow, and three prompts are enough for it.
    prompts = prompts_of(golden)[: None if device == "cpu" else 3]
    rows, expected = (
        load(each, device=device, chat_template="auto").activations(prompts).array
        for each in both
    )
    largest = np.abs(expected).max(axis=(0, 2))
    apart = np.abs(rows.astype(np.float64) - expected).max(axis=(0, 2))
    assert (apart <= NEAR["cpu" if device == "cpu" else "mlx"] * largest).all()


def test_quantizing_moves_the_rows_and_not_far(
    both: tuple[Path, Path], smollm2: Path, golden: dict[str, Any]
):
    prompts = prompts_of(golden)
    rows, published = (
        load(each, chat_template="auto").activations(prompts).array
        for each in (both[0], smollm2)
    )
    alike = (rows * published).sum(-1) / (
        np.linalg.norm(rows, axis=-1) * np.linalg.norm(published, axis=-1)
    )
    assert 0.9 < alike.min() < 0.99999
