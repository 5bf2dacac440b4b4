"""Weight files written anew: byte for byte, but for some tensors' values.

A changed tensor keeps its name, place, type and shape, so the header stays as it is.
One matrix is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ster.checkpoint.stored import Raw, StoredTensor, widened
from ster.checkpoint.weight_file import WeightFile
from ster.errors import NumericsError
from ster.interrupts import raise_if_stopped

F64 = NDArray[np.float64]
_COPIED_BYTES = 1 << 24
# Values of a matrix that are widened at once.
_WIDENED_VALUES = 1 << 20
# Of a float32's bits, those that bfloat16 has no room for.
_LOW_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A direction that is taken out of what a matrix, or a bias, makes.

    W becomes W - strength · u (uᵀ W), and a bias b becomes b - strength · u (u · b).

    Args:
        name: Of the tensor, or of the one that it is a part of.
        tensor: Where it lies: (outputs, inputs), or (outputs,) for a bias.
        transposed: It is stored as (inputs, outputs).
        direction: u, (outputs,), of length 1.
        strength: How much of it; 1 is all.
    """

    name: str
    tensor: StoredTensor
    transposed: bool
    direction: F64
    strength: float

    def make(self) -> Raw:
        """Read the tensor and change it, each value rounded once, to its stored type.

        Raises:
            WeightsError: The file has changed since it was opened.
            NumericsError: A value is not finite, as it was stored or as it becomes.
        """
        values = self.tensor.read()
        if not values.size:
            return values
        with np.errstate(all="ignore"):  # what is not finite is refused below
            change = self._change_rows if self.transposed else self._change_columns
            change(values)
        for some in _slices(values):
            if not np.isfinite(widened(values[some], self.tensor.dtype)).all():
                raise NumericsError(
                    f"the tensor {self.name} is not finite at strength "
                    f"{self.strength:g}",
                    f"a value leaves {self.tensor.dtype}, or is stored as none",
                    path=self.tensor.file.path,
                    field=self.name,
                    found=self.strength,
                )
        return values

    def _change_columns(self, values: Raw) -> None:
        written = np.zeros(values.shape[1:])
        for some in _slices(values):
            written += self.direction[some] @ self._wide(values[some])
        for some in _slices(values):
            taken = np.multiply.outer(self.strength * self.direction[some], written)
            changed = self._wide(values[some]) - taken
            values[some] = narrowed(changed, self.tensor.dtype)

    def _change_rows(self, values: Raw) -> None:
        for some in _slices(values):
            rows = self._wide(values[some])
            written = rows @ self.direction
            rows -= np.multiply.outer(written, self.strength * self.direction)
            values[some] = narrowed(rows, self.tensor.dtype)

    def _wide(self, values: Raw) -> F64:
        wide: F64 = widened(values, self.tensor.dtype).astype(np.float64)
        return wide


def rewrite_file(
    file: WeightFile, changes: Iterable[Change], write: Callable[[memoryview], object]
) -> None:
    """Copy a weight file, changed tensors aside.

    Args:
        file: The file.
        changes: Of tensors in it, none of them twice.
        write: Takes the bytes of the new file, in order.

    Raises:
        WeightsError: The file has changed since it was opened.
        NumericsError: As for ``Change.make``.
    """
    at = 0
    for change in sorted(changes, key=lambda each: each.tensor.start):
        here = replace(change, tensor=replace(change.tensor, file=file))
        _copy(file, at, here.tensor.start, write)
        write(here.make().reshape(-1).view(np.uint8).data)
        at = here.tensor.start + here.tensor.nbytes
    _copy(file, at, file.size, write)


def _copy(
    file: WeightFile, start: int, stop: int, write: Callable[[memoryview], object]
) -> None:
    while start < stop:
        raise_if_stopped()
        part = np.empty(min(stop - start, _COPIED_BYTES), np.uint8)
        file.read_into(start, part)
        write(part.data)
        start += len(part)


def narrowed(values: F64, dtype: str) -> Raw:
    """Round to a stored type, once, to the nearest and of two to the even one.

    Args:
        values: Of any shape.
        dtype: ``F32``, ``F16``, or ``BF16``, whose values are given as their bits.
    """
    if dtype != "BF16":
        return values.astype(np.float32 if dtype == "F32" else np.float16)
    near = values.astype(np.float32)
    bits = near.view(np.uint32)
    inexact = near != values
    # Rounded to the odd one of two, nothing is lost that the second rounding asks for.
    # Source: Boldo and Melquiond 2008, "Emulation of a FMA and correctly-rounded sums".
    bits -= np.abs(near) > np.abs(values)
    bits |= inexact
    bits += 0x7FFF + ((bits >> _LOW_BITS) & 1)
    return (bits >> _LOW_BITS).astype(np.uint16)


def _slices(values: Raw) -> Iterator[slice]:
    """Cut the first axis so that a slice has few values."""
    step = max(1, _WIDENED_VALUES * len(values) // values.size)
    for start in range(0, len(values), step):
        yield slice(start, start + step)
