"""What a block is made of, in numpy: products, norms, the feed-forward part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ster.decoder.numpy.scratch import Scratch

F32 = NDArray[np.float32]
# The stream: f32, or f16 in an f16 run.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """y = x Wᵀ + b, with W as the checkpoint stores it, (outputs, inputs)."""

    weight: F32
    bias: F32 | None

    def __call__(self, x: F32, out: F32 | None = None) -> F32:
        """Apply to rows, (num_rows, inputs) -> (num_rows, outputs)."""
        y: F32 = np.matmul(x, self.weight.T, out=out)
        if self.bias is not None:
            y += self.bias
        return y

    def outputs(self, start: int, stop: int) -> Linear:
        """Return the part that makes some of the outputs; nothing is copied."""
        bias = None if self.bias is None else self.bias[start:stop]
        return Linear(weight=self.weight[start:stop], bias=bias)


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


def silu(x: F32) -> F32:
    """Multiply each value by its sigmoid, where it stands."""
    divisor = np.negative(x)
    np.exp(divisor, out=divisor)
    divisor += 1
    return np.divide(x, divisor, out=x)


@dataclass(frozen=True, slots=True, kw_only=True)
class MLP:
    """down(silu(gate(x)) · up(x)); gate and up come from one product."""

    gate_up_proj: Linear
    down_proj: Linear

    def __call__(self, x: F32, scratch: Scratch) -> F32:
        """Apply to rows, (num_rows, hidden_size), where they stand."""
        out = scratch.columns("projected", len(x), len(self.gate_up_proj.weight))
        gate, up = np.split(self.gate_up_proj(x, out), 2, axis=1)
        step = max(1, ACTIVATED_VALUES // len(x))
        for at in range(0, gate.shape[1], step):
            part = slice(at, at + step)
            activated = silu(gate[:, part])
            activated *= up[:, part]
        return self.down_proj(gate, x)
