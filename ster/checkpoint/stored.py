"""Tensors as they lie in safetensors files, and what their values are.

Nothing is mapped: bytes are copied out by calls that can fail. A file that is cut or
written to is then an error, where touching a mapping of it would end the process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ster.architecture.quantization import Format
from ster.checkpoint.packing_formats import dequantize, dequantize_fp8
from ster.checkpoint.weight_file import WeightFile

F32 = NDArray[np.float32]
Raw = NDArray[Any]
Rows = NDArray[np.integer[Any]]

# numpy has no bfloat16 and no float8: such values are held as their bits.
RAW_TYPES = {
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,
    "U32": np.uint32,
    "U8": np.uint8,
    "F8_E4M3": np.uint8,
}
# Those whose values are numbers as they are.
STORED_TYPES = ("F32", "F16", "BF16")
# Rows that lie near one another are read together, with what is between them.
_NEAR, _TOGETHER_BYTES = 4, 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One tensor as it lies in its file.

    Args:
        file: The file.
        start: Where it begins there, in bytes.
        dtype: A key of ``RAW_TYPES``.
        shape: Its shape.
    """

    file: WeightFile
    start: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def tensors(self) -> tuple[StoredTensor, ...]:
        """Itself: it is stored in one."""
        return (self,)

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * np.dtype(RAW_TYPES[self.dtype]).itemsize

    @property
    def _row_bytes(self) -> int:
        return self.nbytes // self.shape[0] if self.shape[0] else 0

    def at(self, index: int) -> StoredTensor:
        """Return one of those that are stacked along its first axis."""
        start = self.start + index * self._row_bytes
        return replace(self, start=start, shape=self.shape[1:])

    def viewed(self, dtype: str, shape: tuple[int, ...]) -> StoredTensor:
        """Return the same bytes as another type's."""
        return replace(self, dtype=dtype, shape=shape)

    def read(self, out: Raw | None = None) -> Raw:
        """Copy the values out as they are stored.

        Args:
            out: Where to, contiguous and of its type; a new array if not given.

        Raises:
            WeightsError: The file has changed since it was opened.
        """
        if out is None:
            out = np.empty(self.shape, RAW_TYPES[self.dtype])
        self.file.read_into(self.start, out)
        return out

    def read_rows(self, rows: Rows) -> Raw:
        """Copy some entries of its first axis out as they are stored.

        Raises:
            WeightsError: The file has changed since it was opened.
        """
        if not len(rows):
            return np.empty((0, *self.shape[1:]), RAW_TYPES[self.dtype])
        if _in_a_row(rows):
            return self.part(int(rows[0]), len(rows)).read()
        wanted, places = np.unique(rows, return_inverse=True)
        found = np.empty((len(wanted), *self.shape[1:]), RAW_TYPES[self.dtype])
        for some in self._near_one_another(wanted):
            near = wanted[some]
            first, span = int(near[0]), int(near[-1] - near[0]) + 1
            if span == len(near):
                between = found[some]
            else:
                between = np.empty((span, *self.shape[1:]), found.dtype)
            self.file.copy_into(self.start + first * self._row_bytes, between)
            if span > len(near):
                found[some] = between[near - first]
        self.file.check_unchanged()
        return found if _in_a_row(places) else found[places]

    def _near_one_another(self, rows: Rows) -> Iterator[slice]:
        """Cut rows in ascending order into runs that are read together."""
        gaps = np.diff(rows) > _NEAR
        most = max(1, _TOGETHER_BYTES // max(1, self._row_bytes))
        for start, stop in pairwise(
            [0, *(np.flatnonzero(gaps) + 1).tolist(), len(rows)]
        ):
            while start < stop:
                end = int(np.searchsorted(rows[start:stop], rows[start] + most))
                yield slice(start, start + end)
                start += end

    def part(self, first: int, count: int) -> StoredTensor:
        """Return some entries of its first axis."""
        start = self.start + first * self._row_bytes
        return replace(self, start=start, shape=(count, *self.shape[1:]))

    def as_float32(self) -> F32:
        """Copy all values out as f32, exactly.

        Raises:
            WeightsError: The file has changed since it was opened.
        """
        values: F32 = widened(self.read(), self.dtype)
        return values

    def read_float32(self, out: F32) -> None:
        """Copy all values as f32 into a contiguous array; see ``as_float32``."""
        if self.dtype == "F32":
            self.read(out)
        elif self.dtype == "BF16":
            _shift_up(self.read(), out.view(np.uint32))
        else:
            out[...] = self.read()

    def rows_as_float32(self, rows: Rows) -> F32:
        """Copy some rows out as f32, exactly; see ``as_float32``."""
        values: F32 = widened(self.read_rows(rows), self.dtype)
        return values

    def prefetch(self) -> None:
        """Have the system read its bytes in the background."""
        self.file.prefetch(self.start, self.nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedTensor:
    """A quantized matrix (outputs, inputs), or a stack of them.

    Args:
        words: The packed values.
        scales: One a group of neighbouring inputs, or a block.
        biases: Added to each group's values, if there are any.
        format: What they mean.
    """

    words: StoredTensor
    scales: StoredTensor
    biases: StoredTensor | None
    format: Format

    @property
    def tensors(self) -> tuple[StoredTensor, ...]:
        """The tensors that it is stored in."""
        biases = () if self.biases is None else (self.biases,)
        return (self.words, self.scales, *biases)

    def at(self, index: int) -> QuantizedTensor:
        """Return one of those that are stacked along its first axis."""
        return QuantizedTensor(
            words=self.words.at(index),
            scales=self.scales.at(index),
            biases=None if self.biases is None else self.biases.at(index),
            format=self.format,
        )

    def rows_as_float32(self, rows: Rows) -> F32:
        """Make some rows' values, exactly as the format has them.

        Raises:
            WeightsError: The file has changed since it was opened.
        """
        words = self.words.read_rows(rows)
        if self.format.mode == "fp8":
            scales = self.scales.rows_as_float32(rows // self.format.block_rows)
            by_row = replace(self.format, block_rows=1)
            return dequantize_fp8(words, scales, by_row)
        scales = widened(self.scales.read_rows(rows), self.scales.dtype)
        biases = None if self.biases is None else self.biases.rows_as_float32(rows)
        return dequantize(words, scales, biases, self.format)

    def as_float32(self) -> F32:
        """Make all values; see ``rows_as_float32``."""
        return self.rows_as_float32(np.arange(self.words.shape[0]))

    def prefetch(self) -> None:
        """Have the system read its bytes in the background."""
        for tensor in self.tensors:
            tensor.prefetch()


Stored = StoredTensor | QuantizedTensor


def widened(raw: Raw, dtype: str) -> Any:  # noqa: ANN401 - scales of some are bytes
    """Convert floats to f32, exactly; bytes stay as they are."""
    if dtype == "BF16":
        return _shift_up(raw, np.empty(raw.shape, np.uint32)).view(np.float32)
    return raw.astype(np.float32) if dtype == "F16" else raw


def _shift_up(raw: Raw, bits: Raw) -> Raw:
    """Make an f32's upper half of 16 bits."""
    bits[...] = raw
    bits <<= 16
    return bits


def _in_a_row(rows: Rows) -> bool:
    return int(rows[-1]) - int(rows[0]) == len(rows) - 1 and bool(
        (np.diff(rows) == 1).all()
    )
