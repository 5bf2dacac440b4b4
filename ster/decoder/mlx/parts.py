"""What a block is made of, in MLX: products, norms, the feed-forward part."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

import mlx.core as mx

from ster.architecture.parts import ClampedSwiglu
from ster.architecture.quantization import Format
from ster.decoder.mlx.fused import fused


@fused
def plus(x: mx.array, y: mx.array) -> mx.array:
    """Add in f32, whatever width the two have."""
    return x.astype(mx.float32) + y.astype(mx.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """y = x Wᵀ + b, with W as the checkpoint stores it, (outputs, inputs).

    The product is made at the weight's width: the inputs are rounded to it, the kernel
    sums in f32 and rounds once. A bias is added in f32. Where there is none, y is as
    narrow as the weight, for whoever takes it to widen: a step that does more in the
    same kernel.

    Args:
        weight: The W.
        bias: The b, f32.
        inputs: The width that x is rounded to, where the weight is wider.
    """

    weight: mx.array
    bias: mx.array | None
    inputs: mx.Dtype = mx.float32

    @property
    def num_outputs(self) -> int:
        """The width of y."""
        return self.weight.shape[0]

    def __call__(self, x: mx.array) -> mx.array:
        """Apply to rows, (num_rows, inputs) -> (num_rows, outputs)."""
        width = self.weight.dtype
        x = x.astype(self.inputs) if width == mx.float32 else x
        y = x.astype(width) @ self.weight.T
        return y if self.bias is None else plus(y, self.bias)

    def rows(self, indices: mx.array) -> mx.array:
        """Take rows of the weight, (num_rows, inputs) f32."""
        return self.weight[indices].astype(mx.float32)

    def outputs(self, start: int, stop: int) -> Linear:
        """Return the part that makes some of the outputs."""
        bias = None if self.bias is None else self.bias[start:stop]
        return replace(self, weight=self.weight[start:stop], bias=bias)


# Inputs that Metal's kernels take at once; some took what is left over wrongly
# (ml-explore/mlx#3912).
TILE_INPUTS = 32


def multiplied(packing: Format | None, inputs: int) -> Format | None:
    """Tell the format that a weight is multiplied in; None where it is a plain one.

    Args:
        packing: The format that it is stored in, if it is quantized.
        inputs: Of the weight.
    """
    if packing is None or packing.mode == "fp8" or inputs % TILE_INPUTS:
        return None
    return packing


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedLinear:
    """The same with a quantized weight, which is never unpacked.

    Its kernels compute at the widest type of inputs and scales, so f32 makes the weight
    exactly scale · q + bias. At half width they would round that: on Metal wherever
    many rows share a tile, on CUDA always, where they also sum at half width, as MLX's
    cpu backend does. Half-width scales would save a tenth of the memory at most.

    Args:
        weight: The packed values, (outputs, inputs · bits / 32).
        scales: One a group of inputs: f32, or bytes in the floating formats.
        biases: Added to each group's values, in the affine format.
        format: What they mean.
        bias: The b.
        inputs: The width that x is rounded to.
    """

    weight: mx.array
    scales: mx.array
    biases: mx.array | None
    format: Format
    bias: mx.array | None
    inputs: mx.Dtype = mx.float32

    @property
    def num_outputs(self) -> int:
        """The width of y."""
        return self.weight.shape[0]

    def __call__(self, x: mx.array) -> mx.array:
        """Apply to rows, (num_rows, inputs) -> (num_rows, outputs) f32."""
        y = mx.quantized_matmul(
            x.astype(self.inputs).astype(mx.float32),
            self.weight,
            self.scales,
            self.biases,
            transpose=True,
            group_size=self.format.group_size,
            bits=self.format.bits,
            mode=self.format.mode,
        )
        return y if self.bias is None else y + self.bias

    def rows(self, indices: mx.array) -> mx.array:
        """Take rows of the weight, (num_rows, inputs) f32."""
        return mx.dequantize(
            self.weight[indices],
            self.scales[indices],
            None if self.biases is None else self.biases[indices],
            group_size=self.format.group_size,
            bits=self.format.bits,
            mode=self.format.mode,
        ).astype(mx.float32)

    def outputs(self, start: int, stop: int) -> QuantizedLinear:
        """Return the part that makes some of the outputs."""
        return replace(
            self,
            weight=self.weight[start:stop],
            scales=self.scales[start:stop],
            biases=None if self.biases is None else self.biases[start:stop],
            bias=None if self.bias is None else self.bias[start:stop],
        )


SingleLinear = Linear | QuantizedLinear


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedLinear:
    """Products of one input whose weights are stored in different formats."""

    joined: tuple[SingleLinear, ...]

    @property
    def num_outputs(self) -> int:
        """The width of y."""
        return sum(each.num_outputs for each in self.joined)

    def __call__(self, x: mx.array) -> mx.array:
        """Apply to rows, (num_rows, inputs) -> (num_rows, outputs)."""
        return mx.concatenate([each(x) for each in self.joined], axis=-1)

    def outputs(self, start: int, stop: int) -> JoinedLinear:
        """Return those that make some of the outputs; they begin and end with some."""
        ends = accumulate(each.num_outputs for each in self.joined)
        wanted = [
            each
            for each, end in zip(self.joined, ends, strict=True)
            if start < end <= stop
        ]
        return JoinedLinear(joined=tuple(wanted))


AnyLinear = SingleLinear | JoinedLinear


@dataclass(frozen=True, slots=True, kw_only=True)
class RMSNorm:
    """x / sqrt(mean(x²) + eps) · w over the last axis."""

    weight: mx.array
    eps: float

    def __call__(self, x: mx.array) -> mx.array:
        """Normalise rows of any leading shape."""
        return mx.fast.rms_norm(x, self.weight, self.eps)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNorm:
    """(x - mean(x)) / sqrt(variance(x) + eps) · w + b over the last axis."""

    weight: mx.array
    bias: mx.array | None
    eps: float

    def __call__(self, x: mx.array) -> mx.array:
        """Normalise rows of any leading shape."""
        return mx.fast.layer_norm(x, self.weight, self.bias, self.eps)


AnyNorm = RMSNorm | LayerNorm


def silu(x: mx.array) -> mx.array:
    """Multiply each value by its sigmoid."""
    return x * mx.sigmoid(x)


def gelu(x: mx.array) -> mx.array:
    """Multiply each value by the normal distribution up to it."""
    return x * (0.5 * (1 + mx.erf(x * math.sqrt(0.5))))


def gelu_tanh(x: mx.array) -> mx.array:
    """Approximate ``gelu`` by a hyperbolic tangent, as some families do."""
    inner = math.sqrt(2 / math.pi) * (x * (1 + 0.044715 * x * x))
    return x * (0.5 * (1 + mx.tanh(inner)))


ACTIVATIONS: dict[str, Callable[[mx.array], mx.array]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}


@functools.cache
def activated(activation: str) -> Callable[[mx.array], mx.array]:
    """Return what activates rows in f32, and rounds them to the width that they had."""
    act = ACTIVATIONS[activation]
    return fused(lambda x: act(x.astype(mx.float32)).astype(x.dtype))


@functools.cache
def meeting(
    activation: str | ClampedSwiglu,
) -> Callable[[mx.array, mx.array], mx.array]:
    """Return what lets gate and up meet: act(gate) · up, or ``ClampedSwiglu``.

    In f32; what is made has the width that they had, which the next product wants.
    """

    def meet(gate: mx.array, up: mx.array) -> mx.array:
        if isinstance(activation, str):
            return ACTIVATIONS[activation](gate) * up
        gate = mx.minimum(gate, activation.limit)
        up = mx.clip(up, -activation.limit, activation.limit)
        return (up + 1) * (gate * mx.sigmoid(activation.alpha * gate))

    return fused(
        lambda gate, up: meet(gate.astype(mx.float32), up.astype(mx.float32)).astype(
            gate.dtype
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MLP:
    """down(act(gate(x)) · up(x)), or down(act(up(x))) where nothing is gated.

    Gate and up come from one product.
    """

    activation: str | ClampedSwiglu
    gated: bool
    up_proj: AnyLinear
    down_proj: AnyLinear

    def __call__(self, x: mx.array) -> mx.array:
        """Apply to rows, (num_rows, hidden_size)."""
        projected = self.up_proj(x)
        if self.gated:
            gate, up = mx.split(projected, 2, axis=-1)
            return self.down_proj(meeting(self.activation)(gate, up))
        return self.down_proj(activated(str(self.activation))(projected))
