"""Experts in MLX: gathered products against loops, and rows that have no order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ster
from ster.architecture.config import resolve_config
from ster.architecture.quantization import MODES, Format
from ster.errors import NumericsError
from tests.checkpoints import (
    make_config,
    make_tensors,
    random_ids,
    text,
    write_checkpoint,
)
from tests.conformance.running import open_decoder, read

mx = pytest.importorskip("mlx.core")
from ster.architecture.parts import ClampedSwiglu  # noqa: E402
from ster.decoder.mlx.block import MAX_ROWS, multiplied_outputs, rows_at_once  # noqa: E402
from ster.decoder.mlx.experts import (  # noqa: E402
    Experts,
    StackedLinear,
    StackedQuantizedLinear,
)
from ster.decoder.mlx.parts import Linear, meeting  # noqa: E402

NUM_EXPERTS, OUTPUTS, INPUTS = 6, 24, 64
MOE = make_config("qwen3_moe", num_hidden_layers=2)
FORMATS = [
    Format(mode=mode, bits=bits, group_size=size)
    for mode, choices in MODES.items()
    for bits in sorted(choices.bits)
    for size in choices.group_sizes[:1]
]


@pytest.fixture
def place(mlx: str) -> Any:
    return mx.stream(mx.gpu if mlx in ("metal", "cuda") else mx.cpu)


def drawn(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    values = np.random.default_rng(seed).standard_normal(shape)
    return values.astype(np.float32)


def experts_of(num_rows: int) -> NDArray[np.uint32]:
    """Draw an expert for each row, in order; some have no row."""
    chosen = np.random.default_rng(1).choice([0, 1, 3, NUM_EXPERTS - 1], num_rows)
    return np.sort(chosen).astype(np.uint32)


def looped(
    x: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any], chosen: NDArray[Any]
) -> NDArray[np.float64]:
    wide = x.astype(np.float64), weight.astype(np.float64)
    rows = [wide[1][expert] @ row for row, expert in zip(wide[0], chosen, strict=True)]
    made: NDArray[np.float64] = np.stack(rows) + bias[chosen]
    return made


@pytest.mark.parametrize("num_rows", [1, 5, 6, 7, 40, 300])
@pytest.mark.parametrize("width", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("most", [1 << 31, 2 * 4 * OUTPUTS * INPUTS, 1])
def test_each_row_meets_its_own_experts_weights(
    place, width, num_rows, most, monkeypatch
):
    """Also where a stack is too large for one product."""
    monkeypatch.setattr("ster.decoder.mlx.experts.MAX_STACK_BYTES", most)
    x, chosen = drawn(num_rows, INPUTS), experts_of(num_rows)
    bias = drawn(NUM_EXPERTS, OUTPUTS, seed=3)
    with place:
        weight = mx.array(drawn(NUM_EXPERTS, OUTPUTS, INPUTS, seed=2))
        weight = weight.astype(getattr(mx, width))
        stack = StackedLinear(weight=weight, bias=mx.array(bias))
        made = stack(mx.array(x), mx.array(chosen))
        assert made.dtype == mx.float32
        taken = np.array(mx.array(x).astype(weight.dtype).astype(mx.float32))
        expected = looped(taken, np.array(weight.astype(mx.float32)), bias, chosen)
        assert made.shape == (num_rows, OUTPUTS)
        # At half width, what it makes is rounded too, once, before the bias is added.
        near = {"float32": 1e-6, "float16": 2**-11, "bfloat16": 2**-8}[width]
        atol = near * np.abs(expected).max()
        np.testing.assert_allclose(np.array(made), expected, rtol=near, atol=atol)


@pytest.mark.parametrize("quantized", [False, True])
def test_rows_lie_as_far_apart_as_they_are_long(place, monkeypatch, quantized):
    """Sorted products take it from the strides, whatever has one row alone."""
    strides: list[tuple[int, ...]] = []
    name = "gather_qmm" if quantized else "gather_mm"
    gather = getattr(mx, name)

    def watched(a: Any, *given: Any, **how: Any) -> Any:
        strides.append(memoryview(a).strides or ())
        return gather(a, *given, **how)

    monkeypatch.setattr(mx, name, watched)
    with place:
        weight = mx.array(drawn(NUM_EXPERTS, OUTPUTS, INPUTS))
        stack: Any = StackedLinear(weight=weight, bias=None)
        if quantized:
            words, scales, biases = mx.quantize(weight, 32, 4)
            stack = StackedQuantizedLinear(
                weight=words,
                scales=scales,
                biases=biases,
                format=Format(mode="affine", bits=4, group_size=32),
                bias=None,
            )
        stack(mx.array(drawn(100, INPUTS)), mx.array(experts_of(100)))
    assert strides == [(4 * INPUTS, 4 * INPUTS, 4)]


def test_no_product_has_more_matrices_than_cuda_takes(place, monkeypatch):
    monkeypatch.setattr("ster.decoder.mlx.experts.MAX_STACK_MATRICES", 2)
    x, chosen = drawn(50, INPUTS), experts_of(50)
    calls, gather = [], mx.gather_mm

    def watched(a: Any, b: Any, **how: Any) -> Any:
        calls.append(b.shape[0])
        return gather(a, b, **how)

    monkeypatch.setattr(mx, "gather_mm", watched)
    weight = drawn(NUM_EXPERTS, OUTPUTS, INPUTS, seed=2)
    with place:
        stack = StackedLinear(weight=mx.array(weight), bias=None)
        made = np.array(stack(mx.array(x), mx.array(chosen)))
    expected = looped(x, weight, np.zeros((NUM_EXPERTS, OUTPUTS)), chosen)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)
    assert calls == [2, 2, 2]


@pytest.mark.parametrize("num_rows", [1, 7, 200])
@pytest.mark.parametrize("packing", FORMATS, ids=lambda each: f"{each.mode}{each.bits}")
def test_each_row_meets_its_own_experts_quantized_weights(place, packing, num_rows):
    how = {
        "group_size": packing.group_size,
        "bits": packing.bits,
        "mode": packing.mode,
    }
    x, chosen = drawn(num_rows, INPUTS), experts_of(num_rows)
    bias = drawn(NUM_EXPERTS, OUTPUTS, seed=3)
    with place:
        weight = mx.array(drawn(NUM_EXPERTS, OUTPUTS, INPUTS, seed=2))
        packed = mx.quantize(weight, **how)
        stack = StackedQuantizedLinear(
            weight=packed[0],
            scales=packed[1],
            biases=packed[2] if len(packed) > 2 else None,
            format=packing,
            bias=mx.array(bias),
        )
        made = np.array(stack(mx.array(x), mx.array(chosen)))
        opened = mx.dequantize(*packed, **how, dtype=mx.float32)
        expected = looped(x, np.array(opened), bias, chosen)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


def route(place: Any, scores: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Route rows whose scores are given; the router is the identity."""
    width = scores.shape[1]
    spec = resolve_config(MOE | {"num_experts": width}, "config.json")
    nothing: Any = None
    experts: Any = spec.layers[0].feed_forward
    with place:
        router = Linear(weight=mx.eye(width), bias=None)
        made = Experts(
            spec=experts,
            router=router,
            activation="silu",
            gate_proj=nothing,
            up_proj=nothing,
            down_proj=nothing,
            shared=None,
            shared_gate=None,
        )
        chosen, weights = made.route(mx.array(scores))
        return np.array(chosen), np.array(weights)


@pytest.mark.parametrize("width", [4, 128, 300])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_takes_experts_that_there_are(place, value, width):
    scores = drawn(5, width)
    whole = route(place, scores)
    scores[1] = value
    scores[3, width // 2] = value
    chosen, weights = route(place, scores)
    assert ((chosen >= 0) & (chosen < width)).all()
    assert all(len(set(row)) == len(row) for row in chosen.tolist())
    assert not np.isfinite(weights[1]).any()
    for row in (0, 2, 4):
        order, before = np.argsort(chosen[row]), np.argsort(whole[0][row])
        assert (chosen[row][order] == whole[0][row][before]).all()
        assert np.allclose(weights[row][order], whole[1][row][before])


def test_scores_that_are_all_alike_choose_different_experts(place):
    chosen, weights = route(place, np.zeros((3, 16), np.float32))
    assert all(len(set(row)) == len(row) for row in chosen.tolist())
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)


def test_shares_that_vanish_beside_the_largest_leave_finite_weights(place):
    scores = np.full((1, 16), -1e30, np.float32)
    scores[0, 5] = 1e30
    chosen, weights = route(place, scores)
    assert weights[chosen == 5].tolist() == [1]
    assert weights.sum() == 1


def test_a_clamped_activation_holds_what_is_large_and_passes_on_what_is_no_number(
    place,
):
    activation = ClampedSwiglu(alpha=1.702, limit=7.0)
    gate = np.array([1e30, np.inf, -1e30, np.nan, 0, 0], np.float32)
    up = np.array([1e30, np.inf, 5, 1, np.nan, -np.inf], np.float32)
    with place:
        made = np.array(meeting(activation)(mx.array(gate), mx.array(up)))
    np.testing.assert_allclose(made[:2], 8 * 7, rtol=1e-4)
    assert made[2] == 0
    assert np.isnan(made[3:5]).all()
    assert made[5] == 0


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_rows_in_parts_are_as_rows_at_once(
    tmp_path: Path, place, mlx, monkeypatch, precision
):
    made = write_checkpoint(tmp_path, MOE)
    prompts = [random_ids(40, seed=seed) for seed in range(3)]
    opened = open_decoder(made, mlx, precision=precision, keep=True)
    together = read(opened, prompts, [0, 1])
    monkeypatch.setattr("ster.decoder.mlx.block.MAX_PRODUCT", 1 << 14)
    in_parts, bound = read(opened, prompts, [0, 1]), 0 if precision == "f32" else 2e-2
    np.testing.assert_allclose(in_parts, together, rtol=1e-4 + bound, atol=1e-4)


@pytest.mark.parametrize("inner", [8, 512, 1 << 20])
def test_rows_and_their_copies_are_no_more_than_cuda_starts(inner):
    config = MOE | {"moe_intermediate_size": inner, "num_experts_per_tok": 4}
    block = resolve_config(config, "config.json").layers[0]
    rows = rows_at_once(block, multiplied_outputs(block))
    assert 1 <= 4 * rows <= MAX_ROWS < 1 << 16


def test_a_residual_that_is_not_finite_is_refused_by_its_layers_name(
    tmp_path: Path, place, mlx
):
    tensors = make_tensors(MOE)
    for name in tensors:
        if name.startswith("model.layers.0.") and "down_proj" in name:
            tensors[name] = np.full_like(tensors[name], np.inf)
    made = write_checkpoint(tmp_path, MOE, tensors=tensors)
    runtime = ster.load(made.directory, device=mlx)
    with pytest.raises(NumericsError, match="layer 0 of prompt 1 is not finite"):
        runtime.activations([text([3, 4, 5])])
