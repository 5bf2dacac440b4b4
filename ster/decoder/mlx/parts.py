"""What a block is made of, in MLX: products, norms, the feed-forward part."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """y = x Wᵀ + b, with W as the checkpoint stores it, (outputs, inputs).

    The weight is kept at the run's precision and widened where it is used.
    """

    weight: mx.array
    bias: mx.array | None

    def __call__(self, x: mx.array) -> mx.array:
        """Apply to rows, (num_rows, inputs) -> (num_rows, outputs)."""
        y = x @ self.weight.astype(mx.float32).T
        return y if self.bias is None else y + self.bias

    def outputs(self, start: int, stop: int) -> Linear:
        """Return the part that makes some of the outputs."""
        bias = None if self.bias is None else self.bias[start:stop]
        return Linear(weight=self.weight[start:stop], bias=bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class RMSNorm:
    """x / sqrt(mean(x²) + eps) · w over the last axis."""

    weight: mx.array
    eps: float

    def __call__(self, x: mx.array) -> mx.array:
        """Normalise rows of any leading shape."""
        return mx.fast.rms_norm(x, self.weight, self.eps)


def silu(x: mx.array) -> mx.array:
    """Multiply each value by its sigmoid."""
    return x * mx.sigmoid(x)


@dataclass(frozen=True, slots=True, kw_only=True)
class MLP:
    """down(silu(gate(x)) · up(x)); gate and up come from one product."""

    gate_up_proj: Linear
    down_proj: Linear

    def __call__(self, x: mx.array) -> mx.array:
        """Apply to rows, (num_rows, hidden_size)."""
        gate, up = mx.split(self.gate_up_proj(x), 2, axis=-1)
        return self.down_proj(silu(gate) * up)
