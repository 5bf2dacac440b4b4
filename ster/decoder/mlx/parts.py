"""What a block is made of, in MLX: products, norms, the feed-forward part."""

from __future__ import annotations

import math
from collections.abc import Callable
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MLP:
    """down(act(gate(x)) · up(x)), or down(act(up(x))) where nothing is gated.

    Gate and up come from one product.
    """

    activation: str
    gated: bool
    up_proj: Linear
    down_proj: Linear

    def __call__(self, x: mx.array) -> mx.array:
        """Apply to rows, (num_rows, hidden_size)."""
        projected, activate = self.up_proj(x), ACTIVATIONS[self.activation]
        if not self.gated:
            return self.down_proj(activate(projected))
        gate, up = mx.split(projected, 2, axis=-1)
        return self.down_proj(activate(gate) * up)
