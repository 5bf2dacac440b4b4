"""Experts in MLX: gathered products, in which a row meets its chosen experts only."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from ster.architecture import parts
from ster.architecture.parts import ClampedSwiglu
from ster.architecture.quantization import Format
from ster.decoder.mlx.parts import MLP, AnyLinear, meeting, plus

# Bytes of a stack that one gathered product may reach into, and its matrices: on CUDA
# MLX counts the former with 32 bits, and has a thread of one block for each of those.
MAX_STACK_BYTES = (1 << 31) - 1
MAX_STACK_MATRICES = 1024
# Rows from which their order is worth telling: MLX then multiplies tiles of them, which
# few rows do not fill.
MIN_SORTED_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedLinear:
    """y = x Wᵀ + b with a W for every expert, (num_experts, outputs, inputs).

    Products are made at the weights' width; see ``parts.Linear``.
    """

    weight: mx.array
    bias: mx.array | None

    def __call__(self, x: mx.array, experts: mx.array) -> mx.array:
        """Apply each row's own expert.

        Args:
            x: (num_rows, inputs) f32.
            experts: Of each row, in ascending order.

        Returns:
            (num_rows, outputs), as ``parts.Linear`` gives it.
        """
        x = _as_matrices(x.astype(self.weight.dtype))
        if self.weight.dtype == mx.float32 or mx.default_device() == mx.gpu:
            y = _gather_product(x, self.weight, experts)
        else:
            y = _narrow_product(x, self.weight, experts)
        return _biased(y[:, 0], self.bias, experts)


def _gather_product(x: mx.array, weight: mx.array, experts: mx.array) -> mx.array:
    """Multiply each row, a matrix, by its own one, (num_rows, 1, outputs).

    All rows go through each part of a stack that is too large for one product.
    """
    made = mx.zeros((), x.dtype)
    for start, part in _stack_parts(weight):
        inside = mx.clip(experts, start, start + len(part) - 1) - start
        product = mx.gather_mm(
            x,
            part.astype(x.dtype).swapaxes(-1, -2),
            rhs_indices=inside,
            sorted_indices=len(experts) >= MIN_SORTED_ROWS,
        )
        past = (experts >= start)[:, None, None]
        made = product if start == 0 else mx.where(past, product, made)
    return made


def _narrow_product(x: mx.array, weight: mx.array, experts: mx.array) -> mx.array:
    """Do the same at half width on MLX's cpu backend, which gathers in f32 only."""
    if len(experts) <= len(weight):  # no more than these are copied
        return x @ weight[experts].swapaxes(-1, -2)
    return _gather_product(x.astype(mx.float32), weight, experts).astype(x.dtype)


def _as_matrices(x: mx.array) -> mx.array:
    """Make each row a matrix of one row.

    Where an index puts the new axis in, its stride is 1, and sorted products have taken
    that for the distance of rows (ml-explore/mlx#3960, mended in 0.32.1).
    """
    return x.reshape(len(x), 1, -1)


def _stack_parts(weight: mx.array) -> list[tuple[int, mx.array]]:
    """Cut a stack, each part with the number of its first matrix."""
    _, outputs, inputs = weight.shape
    step = max(1, min(MAX_STACK_BYTES // (4 * outputs * inputs), MAX_STACK_MATRICES))
    starts = range(0, len(weight), step)
    return [(start, weight[start : start + step]) for start in starts]


def _biased(y: mx.array, bias: mx.array | None, experts: mx.array) -> mx.array:
    return y if bias is None else plus(y, bias[experts])


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedQuantizedLinear:
    """The same with quantized weights; see ``parts.QuantizedLinear``."""

    weight: mx.array
    scales: mx.array
    biases: mx.array | None
    format: Format
    bias: mx.array | None
    inputs: mx.Dtype = mx.float32

    def __call__(self, x: mx.array, experts: mx.array) -> mx.array:
        """Apply each row's own expert; see ``StackedLinear``."""
        y = mx.gather_qmm(
            _as_matrices(x.astype(self.inputs).astype(mx.float32)),
            self.weight,
            self.scales,
            self.biases,
            rhs_indices=experts,
            transpose=True,
            group_size=self.format.group_size,
            bits=self.format.bits,
            mode=self.format.mode,
            sorted_indices=True,
        )
        return _biased(y[:, 0], self.bias, experts)


AnyStacked = StackedLinear | StackedQuantizedLinear


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The sum over a row's chosen experts of weight · expert(x), and a shared one's.

    Args:
        spec: What the experts are.
        router: Makes a score for each expert.
        activation: As for ``architecture.parts.FeedForward``.
        gate_proj: Of all experts.
        up_proj: Of all experts.
        down_proj: Of all experts.
        shared: Serves every row.
        shared_gate: Makes the score whose sigmoid multiplies what the shared one gives.
    """

    spec: parts.Experts
    router: AnyLinear
    activation: str | ClampedSwiglu
    gate_proj: AnyStacked
    up_proj: AnyStacked
    down_proj: AnyStacked
    shared: MLP | None
    shared_gate: AnyLinear | None

    def __call__(self, x: mx.array) -> mx.array:
        """Apply to rows, (num_rows, hidden_size) f32."""
        chosen, weights = self.route(x)
        # Rows of one expert together, as the gathered products are fastest.
        flat = chosen.flatten()
        order = mx.argsort(flat)
        experts, taken = flat[order], x[order // chosen.shape[-1]]
        gate, up = self.gate_proj(taken, experts), self.up_proj(taken, experts)
        made = self.down_proj(meeting(self.activation)(gate, up), experts)
        made = made[mx.argsort(order)].reshape(*chosen.shape, -1)
        summed = (made.astype(mx.float32) * weights[..., None]).sum(axis=1)
        if self.shared is None:
            return summed
        return plus(summed, self._shared(x, self.shared))

    def route(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Choose experts, (num_rows, num_chosen), and weigh them, likewise."""
        shares = mx.softmax(self.router(x), axis=-1, precise=True)
        last = shares.shape[-1] - self.spec.num_chosen
        # A row that is not finite has no order, and shares that say so all the same.
        ranked = mx.where(mx.isnan(shares), -1, shares)
        chosen = mx.argpartition(ranked, last, axis=-1)[:, last:]
        weights = mx.take_along_axis(shares, chosen, axis=-1)
        if self.spec.normalized:
            weights = weights / weights.sum(axis=-1, keepdims=True)
        return chosen, weights

    def _shared(self, x: mx.array, shared: MLP) -> mx.array:
        made = shared(x)
        if self.shared_gate is None:
            return made
        share = mx.sigmoid(self.shared_gate(x).astype(mx.float32))
        return made.astype(mx.float32) * share
