"""A spec's matrices, found among a checkpoint's tensors, whatever their layout there.

Both decoders ask here for rows of (outputs, inputs); nothing past this page knows that
a tensor is fused, stacked, transposed or quantized on the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ster.architecture.modules import Matrix
from ster.checkpoint.stored import F32, Raw, Rows, Stored, StoredTensor


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMatrix:
    """A matrix (outputs, inputs) in its place.

    Args:
        place: Which of the spec's places the file has it in.
        weight: What holds it.
        bias: What holds its bias, if it has one.
    """

    place: Matrix
    weight: Stored
    bias: Stored | None

    @property
    def is_transposed(self) -> bool:
        """Tell whether its rows are columns in the file; quantized ones never are."""
        return self.place.transposed and isinstance(self.weight, StoredTensor)

    @property
    def dtype(self) -> str | None:
        """The stored type, None where it is quantized."""
        return self.weight.dtype if isinstance(self.weight, StoredTensor) else None

    def take(self, rows: Rows) -> F32:
        """Copy some of its rows out as f32, (num_rows, inputs).

        Raises:
            WeightsError: The file has changed since it was opened.
        """
        if not self.place.keeps_order:
            rows = self.place.rows[rows]
        if isinstance(self.weight, StoredTensor) and self.place.transposed:
            return self.weight.as_float32().T[rows]
        return self.weight.rows_as_float32(rows)

    def read_float32(self, rows: Rows, out: F32) -> None:
        """Copy rows that follow one another as f32 into an array that is contiguous.

        Raises:
            WeightsError: The file has changed since it was opened.
        """
        weight, as_is = self.weight, self.place.keeps_order and not self.is_transposed
        if isinstance(weight, StoredTensor) and as_is:
            weight.part(int(rows[0]), len(rows)).read_float32(out)
        else:
            out[:] = self.take(rows)

    def row_of(self, tensor: StoredTensor) -> tuple[int, ...]:
        """Return the shape of one of its rows in one of its tensors."""
        return tensor.shape[:1] if self.is_transposed else tensor.shape[1:]

    def read(self, tensor: StoredTensor, out: Raw) -> None:
        """Copy all its rows out of one of its tensors, as they are stored there.

        Args:
            tensor: Which one.
            out: Where to, contiguous and of the tensor's type.

        Raises:
            WeightsError: The file has changed since it was opened.
        """
        if self.is_transposed:
            out[:] = tensor.read().T[self.place.rows]
        elif self.place.keeps_order:
            tensor.read(out)
        else:
            out[:] = tensor.read_rows(self.place.rows)

    def read_bias(self) -> F32 | None:
        """Copy its bias out as f32, (outputs,), if it has one."""
        if self.bias is None:
            return None
        values = self.bias.as_float32()
        return values if self.place.keeps_order else values[self.place.rows]


def stored_matrix(
    tensors: Mapping[str, Stored], prefix: str, matrix: Matrix
) -> StoredMatrix:
    """Find a matrix among tensors that were opened for its spec.

    Args:
        tensors: By their names without what stands before all of them.
        prefix: Of its block.
        matrix: What the spec says of it.
    """
    place = next(each for each in matrix.places if prefix + each.weight_name in tensors)
    weight = tensors[prefix + place.weight_name]
    bias = tensors[prefix + place.bias_name] if place.bias else None
    if place.stack is not None:
        index = place.stack[0]
        weight = weight.at(index)
        bias = None if bias is None else bias.at(index)
    return StoredMatrix(place=place, weight=weight, bias=bias)
