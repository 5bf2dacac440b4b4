"""Quantized matrices in MLX, and how matrices of several kinds come to the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ster.architecture.quantization import Format
from ster.checkpoint.weight_file import WeightFile
from tests.checkpoints import (
    Tensors,
    as_stored,
    make_config,
    make_tensors,
    write_checkpoint,
)
from tests.conformance.compare import assert_close, tolerance
from tests.conformance.running import rows_of
from tests.test_weights import Raw, write

mx = pytest.importorskip("mlx.core")
from ster.decoder.mlx.parts import (  # noqa: E402
    AnyLinear,
    JoinedLinear,
    Linear,
    QuantizedLinear,
    multiplied,
)

INPUTS = 64
MOE = make_config(
    "qwen3_moe", hidden_size=64, moe_intermediate_size=64, num_hidden_layers=2
)
EXPERT = "model.layers.0.mlp.experts."


@pytest.fixture(autouse=True)
def place(mlx: str) -> Iterator[None]:
    with mx.stream(mx.gpu if mlx in ("metal", "cuda") else mx.cpu):
        yield


def drawn(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    values = np.random.default_rng(seed).standard_normal(shape)
    return values.astype(np.float32)


def plain(outputs: int, *, bias: bool = True, width: str = "float32") -> Linear:
    return Linear(
        weight=mx.array(drawn(outputs, INPUTS, seed=outputs)).astype(
            getattr(mx, width)
        ),
        bias=mx.array(drawn(outputs, seed=outputs)) if bias else None,
    )


def quantized(outputs: int, mode: str = "affine", *, bias: bool = True) -> Any:
    """Make one, and the plain one that it stands for."""
    size = {"affine": 32, "nvfp4": 16}.get(mode, 32)
    bits = 8 if mode == "mxfp8" else 4
    how = {"group_size": size, "bits": bits, "mode": mode}
    twin = plain(outputs, bias=bias)
    packed = mx.quantize(twin.weight, **how)
    made = QuantizedLinear(
        weight=packed[0],
        scales=packed[1],
        biases=packed[2] if len(packed) > 2 else None,
        format=Format(mode=mode, bits=bits, group_size=size),
        bias=twin.bias,
    )
    opened = mx.dequantize(*packed, **how, dtype=mx.float32)
    return made, Linear(weight=opened, bias=twin.bias)


def assert_alike(one: AnyLinear, other: AnyLinear, num_rows: int = 5) -> None:
    x = mx.array(drawn(num_rows, INPUTS, seed=9))
    assert one.num_outputs == other.num_outputs == other(x).shape[-1]
    np.testing.assert_allclose(
        np.array(one(x)), np.array(other(x)), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("num_rows", [1, 2, 40])
@pytest.mark.parametrize("mode", ["affine", "mxfp4", "mxfp8", "nvfp4"])
def test_a_quantized_product_and_its_parts_are_those_of_its_values(mode, num_rows):
    made, twin = quantized(48, mode)
    assert_alike(made, twin, num_rows)
    assert_alike(made.outputs(8, 32), twin.outputs(8, 32), num_rows)
    assert made.outputs(8, 32).num_outputs == 24


@pytest.mark.parametrize("num_rows", [1, 5])
@pytest.mark.parametrize("width", ["float16", "bfloat16"])
def test_a_narrow_product_rounds_what_it_takes_and_gives_and_sums_in_f32(
    width, num_rows
):
    made, x, at = plain(24, width=width), drawn(num_rows, INPUTS), getattr(mx, width)
    narrow = np.array(mx.array(x).astype(at).astype(mx.float32)).astype(np.float64)
    weight = np.array(made.weight.astype(mx.float32)).astype(np.float64)
    exact = mx.array((narrow @ weight.T).astype(np.float32))
    expected = exact.astype(at).astype(mx.float32) + made.bias
    found = made(mx.array(x))
    assert found.dtype == mx.float32
    # A sum that lies between two numbers of that width may fall to either.
    assert (np.array(found) == np.array(expected)).mean() > 0.97
    np.testing.assert_allclose(np.array(found), np.array(expected), rtol=2e-2)


@pytest.mark.parametrize("mode", ["affine", "mxfp4"])
def test_a_quantized_product_rounds_what_it_takes_and_nothing_else(mode):
    made, twin = quantized(48, mode)
    x = mx.array(drawn(5, INPUTS))
    rounded = x.astype(mx.bfloat16).astype(mx.float32)
    found = np.array(replace(made, inputs=mx.bfloat16)(x))
    np.testing.assert_allclose(found, np.array(twin(rounded)), rtol=1e-4, atol=1e-4)
    assert np.abs(found - np.array(twin(x))).max() > 1e-3


def test_joined_products_stand_side_by_side():
    (one, twin), last = quantized(8), plain(24, width="float16")
    joined = JoinedLinear(joined=(one, plain(16), last))
    parts = [each(x := mx.array(drawn(3, INPUTS))) for each in (twin, plain(16), last)]
    found = np.array(joined(x))
    np.testing.assert_allclose(found, np.concatenate(parts, 1), rtol=1e-4, atol=1e-4)
    assert joined.num_outputs == 48


def test_of_joined_products_some_make_some_of_the_outputs():
    joined = JoinedLinear(joined=(quantized(8)[0], plain(16), plain(24)))
    x = mx.array(drawn(3, INPUTS))
    whole = np.array(joined(x))
    for start, stop in ((0, 8), (8, 48), (8, 24), (0, 48)):
        found = joined.outputs(start, stop)
        assert found.num_outputs == stop - start
        np.testing.assert_array_equal(np.array(found(x)), whole[:, start:stop])


def quantize(tensors: Tensors, name: str, bits: int) -> None:
    words, scales, biases = mx.quantize(mx.array(tensors[f"{name}.weight"]), 32, bits)
    made = {"weight": words, "scales": scales, "biases": biases}
    tensors |= {f"{name}.{part}": np.array(each) for part, each in made.items()}


@pytest.mark.parametrize("mixed", ["expert", "plain", "projections"])
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_matrices_of_several_formats_are_what_they_are_on_cpu(
    tmp_path: Path, mlx, mixed, precision
):
    """Experts cannot be stacked as they are, nor q, k and v be joined."""
    declared: dict[str, Any] = {"group_size": 32, "bits": 4}
    tensors = make_tensors(MOE)
    names = [name.removesuffix(".weight") for name in tensors if "experts" in name]
    names = [name for name in names if name.startswith(EXPERT)]
    if mixed == "projections":
        names = [f"model.layers.0.self_attn.{part}_proj" for part in "qk"]
    for number, name in enumerate(names):
        if number == 1 and mixed == "plain":
            continue
        bits = 8 if number == 1 else 4
        quantize(tensors, name, bits)
        if bits == 8:
            declared[name] = {"group_size": 32, "bits": 8}
    made = write_checkpoint(tmp_path, MOE | {"quantization": declared}, tensors=tensors)
    found = rows_of(made, device=mlx, precision=precision)
    close = tolerance(mlx, precision)
    assert_close(found, rows_of(made), close)


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_matrices_of_several_types_are_what_they_are_on_cpu(
    tmp_path: Path, mlx, family
):
    config = make_config(family)
    made = write_checkpoint(tmp_path, config)
    raw: Raw = {}
    types = cycle(("F32", "F16", "BF16", "BF16"))
    for (name, values), dtype in zip(made.tensors.items(), types, strict=False):
        kept = values.astype(np.float32)
        if dtype == "F16":
            kept = kept.astype(np.float16)
        if dtype == "BF16":
            kept = (as_stored(kept, "bf16").view(np.uint32) >> 16).astype(np.uint16)
        raw[name] = (dtype, values.shape, kept.tobytes())
    write(tmp_path / "model.safetensors", raw)
    assert_close(rows_of(made, device=mlx), rows_of(made), tolerance(mlx, "f32"))


def test_experts_whose_rows_are_interleaved_come_in_few_reads(
    tmp_path: Path, mlx, monkeypatch
):
    """OpenAI's files have gate and up in turns."""
    changes = {
        "hidden_size": 64,
        "intermediate_size": 512,
        "num_hidden_layers": 1,
        "layer_types": ["full_attention"],
        "quantization_config": {"quant_method": "mxfp4"},
    }
    made = write_checkpoint(tmp_path, make_config("gpt_oss", **changes))
    reads: list[int] = []
    copy = WeightFile.copy_into

    def watched(self: WeightFile, start: int, out: NDArray[Any]) -> None:
        reads.append(out.nbytes)
        copy(self, start, out)

    monkeypatch.setattr(WeightFile, "copy_into", watched)
    monkeypatch.setattr("ster.checkpoint.stored._TOGETHER_BYTES", 1 << 14)
    rows_of(made, device=mlx)
    stored = sum(each.nbytes for each in made.tensors.values())
    # Gate and up in turns are read once for each.
    assert sum(reads) < 3 * stored
    assert len(reads) < 30 * made.config["num_local_experts"]


@pytest.mark.parametrize(
    ("mode", "size", "inputs", "stays"),
    [
        ("nvfp4", 16, 1024, True),
        ("nvfp4", 16, 1040, False),
        ("mxfp4", 32, 96, True),
        ("fp8", 128, 256, False),
    ],
)
def test_weights_whose_inputs_are_no_whole_tiles_are_multiplied_as_plain_ones(
    mode, size, inputs, stays
):
    packing = Format(mode=mode, bits=4, group_size=size)
    assert multiplied(packing, inputs) == (packing if stays else None)
    assert multiplied(None, inputs) is None


@pytest.mark.parametrize("hidden_size", [64, 48])
def test_what_is_stored_in_groups_of_16_is_what_it_is_on_cpu(
    tmp_path: Path, mlx, hidden_size
):
    config = make_config(hidden_size=hidden_size, intermediate_size=80)
    tensors, packed = make_tensors(config), {"mode": "nvfp4", "bits": 4}
    for name in [each for each in tensors if "proj" in each]:
        words, scales = mx.quantize(mx.array(tensors[name]), 16, 4, mode="nvfp4")
        tensors[name] = np.array(words)
        tensors[name.removesuffix("weight") + "scales"] = np.array(scales)
    declared = {"quantization": packed | {"group_size": 16}}
    made = write_checkpoint(tmp_path, config | declared, tensors=tensors)
    found = rows_of(made, device=mlx)
    assert_close(found, rows_of(made), tolerance(mlx, "f32"))
