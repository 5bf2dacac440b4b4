"""What a block is made of, in numpy: products, norms, the feed-forward part."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ster.architecture.parts import ClampedSwiglu
from ster.decoder.numpy.scratch import F32_WIDTH, Scratch
from ster.decoder.numpy.threads import quiet

F32 = NDArray[np.float32]
# Keys and values: f32, or f16 in an f16 run.
Hidden = NDArray[np.float32] | NDArray[np.float16]

# Values of a slice's widest intermediate: enough rows that a product pays for packing
# its weights, and few enough that what stands between products stays near the core.
SLICE_VALUES = 1 << 21
MIN_SLICE_ROWS, MAX_SLICE_ROWS = 256, 1280
# Values that are activated at once: they stay in a core's cache.
ACTIVATED_VALUES = 1 << 18


def slice_rows(intermediate_size: int) -> int:
    """Choose how many rows go through a block together on one core."""
    rows = SLICE_VALUES // intermediate_size
    return min(MAX_SLICE_ROWS, max(MIN_SLICE_ROWS, rows))


def rounded(values: F32, dtype: np.dtype[Any]) -> F32:
    """Round to the run's precision; past its range lie infinities, refused later."""
    if dtype == np.float32:
        return values
    with quiet():
        return values.astype(dtype).astype(np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """y = x Wᵀ + b, with W as the checkpoint stores it, (outputs, inputs).

    Args:
        weight: The W.
        bias: The b.
        inputs: The width that x is rounded to; the product itself is f32.
    """

    weight: F32
    bias: F32 | None
    inputs: np.dtype[Any] = F32_WIDTH

    def __call__(self, x: F32, out: F32 | None = None) -> F32:
        """Apply to rows, (num_rows, inputs) -> (num_rows, outputs)."""
        y: F32 = np.matmul(rounded(x, self.inputs), self.weight.T, out=out)
        if self.bias is not None:
            y += self.bias
        return y

    def outputs(self, start: int, stop: int) -> Linear:
        """Return the part that makes some of the outputs; nothing is copied."""
        bias = None if self.bias is None else self.bias[start:stop]
        return replace(self, weight=self.weight[start:stop], bias=bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class RMSNorm:
    """x / sqrt(mean(x²) + eps) · w over the last axis."""

    weight: F32
    eps: float

    def __call__(self, x: F32, out: F32 | None = None) -> F32:
        """Normalise rows of any leading shape."""
        mean_square: F32 = np.einsum("...i,...i->...", x, x)[..., None] / x.shape[-1]
        normed: F32 = np.multiply(x, 1 / np.sqrt(mean_square + self.eps), out=out)
        normed *= self.weight
        return normed


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNorm:
    """(x - mean(x)) / sqrt(variance(x) + eps) · w + b over the last axis."""

    weight: F32
    bias: F32 | None
    eps: float

    def __call__(self, x: F32, out: F32 | None = None) -> F32:
        """Normalise rows of any leading shape."""
        mean = np.mean(x, axis=-1, keepdims=True)
        centred: F32 = np.subtract(x, mean, out=out)
        variance = np.einsum("...i,...i->...", centred, centred) / x.shape[-1]
        centred *= 1 / np.sqrt(variance[..., None] + self.eps)
        centred *= self.weight
        if self.bias is not None:
            centred += self.bias
        return centred


AnyNorm = RMSNorm | LayerNorm


def silu(x: F32) -> F32:
    """Multiply each value by its sigmoid, where it stands."""
    divisor = np.negative(x)
    np.exp(divisor, out=divisor)
    divisor += 1
    return np.divide(x, divisor, out=x)


def gelu(x: F32) -> F32:
    """Multiply each value by the normal distribution up to it, where it stands.

    Source: Abramowitz and Stegun 1964, 7.1.26, whose error is 1.5e-7 at most.
    """
    z = np.abs(x) * math.sqrt(0.5)
    t = 1 / (1 + 0.3275911 * z)
    tail = t * (1.061405429 * t - 1.453152027)
    for coefficient in (1.421413741, -0.284496736, 0.254829592):
        tail = (tail + coefficient) * t
    tail *= np.exp(-z * z)
    x *= 0.5 * (1 + np.copysign(1 - tail, x))
    return x


def gelu_tanh(x: F32) -> F32:
    """Approximate ``gelu`` by a hyperbolic tangent, as some families do."""
    inner = x * x
    inner *= 0.044715
    inner += 1
    inner *= x
    inner *= math.sqrt(2 / math.pi)
    np.tanh(inner, out=inner)
    inner += 1
    inner *= 0.5
    x *= inner
    return x


ACTIVATIONS: dict[str, Callable[[F32], F32]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}


def clamped_swiglu(gate: F32, up: F32, clamped: ClampedSwiglu) -> F32:
    """Let gate and up meet in ``ClampedSwiglu``'s way, where the gate stands."""
    np.minimum(gate, clamped.limit, out=gate)
    np.clip(up, -clamped.limit, clamped.limit, out=up)
    divisor = gate * -clamped.alpha
    np.exp(divisor, out=divisor)
    divisor += 1
    gate /= divisor
    up += 1
    gate *= up
    return gate


@dataclass(frozen=True, slots=True, kw_only=True)
class MLP:
    """down(act(gate(x)) · up(x)), or down(act(up(x))) where nothing is gated.

    Gate and up come from one product.
    """

    activation: str | ClampedSwiglu
    gated: bool
    up_proj: Linear
    down_proj: Linear

    def __call__(self, x: F32, scratch: Scratch) -> F32:
        """Apply to rows, (num_rows, hidden_size), where they stand."""
        out = scratch.columns("projected", len(x), len(self.up_proj.weight))
        projected = self.up_proj(x, out)
        inner = self.down_proj.weight.shape[1]
        step = max(1, ACTIVATED_VALUES // len(x))
        for at in range(0, inner, step):
            stop = min(at + step, inner)
            first = projected[:, at:stop]
            second = projected[:, inner + at : inner + stop]
            if isinstance(self.activation, ClampedSwiglu):
                clamped_swiglu(first, second, self.activation)
                continue
            ACTIVATIONS[self.activation](first)
            if self.gated:
                first *= second
        return self.down_proj(projected[:, :inner], x)
