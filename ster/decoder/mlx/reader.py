"""Reads weights of a checkpoint onto a GPU, in their formats or at a run's width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import mlx.core as mx
import numpy as np

from ster.architecture.modules import Matrix, Norm, Values
from ster.architecture.quantization import Format
from ster.checkpoint.matrices import StoredMatrix, stored_matrix
from ster.checkpoint.stored import RAW_TYPES, STORED_TYPES, Raw, Stored, StoredTensor
from ster.decoder.mlx.experts import (
    AnyStacked,
    StackedLinear,
    StackedQuantizedLinear,
)
from ster.decoder.mlx.failures import device_failures
from ster.decoder.mlx.parts import (
    AnyLinear,
    AnyNorm,
    JoinedLinear,
    LayerNorm,
    Linear,
    QuantizedLinear,
    RMSNorm,
    SingleLinear,
    multiplied,
)


@dataclass(frozen=True, slots=True)
class WeightReader:
    """Reads weights of one place onto the GPU, rounded to the run's precision."""

    tensors: Mapping[str, Stored]
    prefix: str
    dtype: mx.Dtype
    # All that was read, to be evaluated.
    made: list[mx.array] = field(default_factory=list)

    def optional_norm(self, norm: Norm | None) -> AnyNorm | None:
        """Read a norm, if there is one."""
        return None if norm is None else self.norm(norm)

    def norm(self, norm: Norm) -> AnyNorm:
        """Read a norm; an offset joins its weight."""
        weight = self.vector(f"{norm.name}.weight")
        if norm.offset:
            weight = self._note(weight + norm.offset)
        if norm.pairs is not None:
            weight = self._note(weight[mx.array(norm.order)])
        if not norm.centred:
            return RMSNorm(weight=weight, eps=norm.eps)
        bias = self.vector(f"{norm.name}.bias") if norm.bias else None
        return LayerNorm(weight=weight, bias=bias, eps=norm.eps)

    def optional_values(self, values: Values | None) -> mx.array | None:
        """Read a tensor, if there is one."""
        return None if values is None else self.vector(values.name)

    def vector(self, name: str) -> mx.array:
        """Read a small tensor, rounded but kept wide."""
        values = self.tensors[self.prefix + name].as_float32()
        return self._note(self._rounded(values))

    def linear(self, *matrices: Matrix) -> AnyLinear:
        """Read matrices of one input; either all of them have a bias or none.

        They are stacked into one, unless they are stored in different formats.
        """
        found = [self._find(each) for each in matrices]
        if len({_format(each) for each in found}) > 1:
            return JoinedLinear(joined=tuple(self._alike([each]) for each in found))
        return self._alike(found)

    def single(self, matrix: Matrix) -> SingleLinear:
        """Read a matrix that stands for itself."""
        return self._alike([self._find(matrix)])

    def _alike(self, found: Sequence[StoredMatrix]) -> SingleLinear:
        """Read matrices that are stored in one format into one."""
        bias, packing = self._bias(found), _format(found[0])
        bias = None if bias is None else self._note(bias)
        if packing is None:
            return Linear(weight=self._note(self._weight(found)), bias=bias)
        weight, scales, *others = map(self._note, self._packed(found))
        return QuantizedLinear(
            weight=weight,
            scales=scales,
            biases=others[0] if others else None,
            format=packing,
            bias=bias,
            inputs=self.dtype,
        )

    def wide(self, matrix: Matrix, inputs: mx.Dtype = mx.float32) -> SingleLinear:
        """Read a matrix whose products are f32: rounded, and widened once.

        Args:
            matrix: The head, or a router: scores may differ by less than a rounding.
            inputs: The width of what it multiplies.
        """
        made = self.single(matrix)
        if isinstance(made, QuantizedLinear):
            return replace(made, inputs=inputs)
        wide = self._note(made.weight.astype(mx.float32))
        return replace(made, weight=wide, inputs=inputs)

    def stacked(self, matrices: Sequence[Matrix]) -> AnyStacked:
        """Read alike matrices of many experts, each for itself in one stack."""
        found = [self._find(each) for each in matrices]
        formats = {_format(each) for each in found}
        # Of several formats they are multiplied in none.
        packing = formats.pop() if len(formats) == 1 else None
        bias = self._bias(found)
        bias = None if bias is None else self._note(bias.reshape(len(found), -1))

        def stack(rows: mx.array) -> mx.array:
            return self._note(rows.reshape(len(found), -1, rows.shape[-1]))

        if packing is None:
            return StackedLinear(weight=stack(self._weight(found)), bias=bias)
        weight, scales, *others = map(stack, self._packed(found))
        return StackedQuantizedLinear(
            weight=weight,
            scales=scales,
            biases=others[0] if others else None,
            format=packing,
            bias=bias,
            inputs=self.dtype,
        )

    def _find(self, matrix: Matrix) -> StoredMatrix:
        return stored_matrix(self.tensors, self.prefix, matrix)

    def _weight(self, found: Sequence[StoredMatrix]) -> mx.array:
        """Copy the rows of plain weights to the device, and convert them there."""
        plain = [each.weight for each in found if isinstance(each.weight, StoredTensor)]
        if len(plain) == len(found):
            return _brought(found, plain, self.dtype)
        rows = []  # in a format that MLX lacks
        for each in found:
            values = each.take(np.arange(each.place.outputs))
            rows.append(_array(values).astype(self.dtype))
        return mx.concatenate(rows)

    def _packed(self, found: Sequence[StoredMatrix]) -> list[mx.array]:
        """Copy the tensors of quantized weights; affine scales and biases as f32."""
        alike = zip(*(each.weight.tensors for each in found), strict=True)
        return [_brought(found, tensors, mx.float32) for tensors in alike]

    def _bias(self, found: Sequence[StoredMatrix]) -> mx.array | None:
        """Copy biases, one after the other, rounded but kept wide."""
        biases = [bias for each in found if (bias := each.read_bias()) is not None]
        return self._rounded(np.concatenate(biases)) if biases else None

    def finish(self) -> None:
        """Evaluate: else weights stay as stored, and belong to this thread's stream."""
        with device_failures():
            mx.eval(self.made)

    def _note(self, array: mx.array) -> mx.array:
        self.made.append(array)
        return array

    def _rounded(self, values: Raw) -> mx.array:
        return _array(values).astype(self.dtype).astype(mx.float32)


def _format(stored: StoredMatrix) -> Format | None:
    """Tell the format that a weight is multiplied in; None where it is a plain one."""
    weight = stored.weight
    packing = None if isinstance(weight, StoredTensor) else weight.format
    return multiplied(packing, stored.place.inputs)


def _brought(
    found: Sequence[StoredMatrix], tensors: Sequence[StoredTensor], width: mx.Dtype
) -> mx.array:
    """Bring one tensor of each matrix to the device, all rows in one copy of them.

    Args:
        found: The matrices, of one input.
        tensors: One of each.
        width: Of the result, where they are floats.
    """
    runs = groupby(zip(found, tensors, strict=True), key=lambda each: each[1].dtype)
    brought = [_brought_alike([*run], width) for _, run in runs]
    return brought[0] if len(brought) == 1 else mx.concatenate(brought)


def _brought_alike(
    pairs: Sequence[tuple[StoredMatrix, StoredTensor]], width: mx.Dtype
) -> mx.array:
    first, tensor = pairs[0]
    num_rows = sum(matrix.place.outputs for matrix, _ in pairs)
    rows = np.empty((num_rows, *first.row_of(tensor)), RAW_TYPES[tensor.dtype])
    start = 0
    for matrix, each in pairs:
        stop = start + matrix.place.outputs
        matrix.read(each, rows[start:stop])
        start = stop
    array = _array(rows)
    if tensor.dtype == "BF16":
        array = array.view(mx.bfloat16)
    return array.astype(width) if tensor.dtype in STORED_TYPES else array


def _array(values: Raw) -> mx.array:
    with device_failures():
        return mx.array(values)
