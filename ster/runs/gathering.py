"""All rows of a reading in one array, which is filled as the waves come."""

from __future__ import annotations

import numpy as np

from ster.runs.reading import Reading
from ster.runs.wave import F32


class Gathering:
    """Collects the rows of waves, each of which is in memory once.

    Args:
        reading: What is read.
    """

    def __init__(self, reading: Reading) -> None:
        self._num_rows = sum(reading.wanted.num_rows)
        self._arrays: list[F32] = []
        self._filled = 0

    def add(self, found: list[F32]) -> None:
        """Take the rows of the next wave, an array for each point."""
        count = len(found[0])
        if count == self._num_rows:  # the only wave
            self._arrays = found
        elif not self._arrays:
            shape = self._num_rows, *found[0].shape[1:]
            self._arrays = [np.empty(shape, np.float32) for _ in found]
        if count < self._num_rows:
            for whole, rows in zip(self._arrays, found, strict=True):
                whole[self._filled : self._filled + count] = rows
        self._filled += count

    def arrays(self) -> list[F32]:
        """Return each point's rows so far, (num_rows, num_layers, hidden_size)."""
        if self._filled == self._num_rows:
            return self._arrays
        return [whole[: self._filled].copy() for whole in self._arrays]
