"""Which rows of a stream are read out: some tokens of each prompt, or their mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ster.stream.packing import Ints, PackedPrompts, Tokens

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRows:
    """The tokens that are read of some prompts.

    Args:
        positions: Those of each prompt, ascending, at least one.
        is_mean: A prompt has one row, the mean over its tokens; else one for each.
    """

    positions: Sequence[Sequence[int]]
    is_mean: bool = False

    @classmethod
    def last(cls, token_ids: Sequence[Tokens]) -> WantedRows:
        """Want the last token of every prompt."""
        return cls(positions=[range(len(ids) - 1, len(ids)) for ids in token_ids])

    def take(self, wave: range) -> WantedRows:
        """Take consecutive prompts."""
        positions = self.positions[wave.start : wave.stop]
        return WantedRows(positions=positions, is_mean=self.is_mean)

    @property
    def num_read(self) -> list[int]:
        """How many tokens of each prompt are read."""
        return [*map(len, self.positions)]

    @property
    def num_rows(self) -> list[int]:
        """How many rows each prompt has in the result."""
        return [1] * len(self.positions) if self.is_mean else self.num_read

    @property
    def prompt_index(self) -> Ints:
        """The prompt of each row of the result, (num_rows,)."""
        return np.repeat(np.arange(len(self.positions)), self.num_rows)

    def find(self, packed: PackedPrompts) -> tuple[Ints, Ints | None]:
        """Find the rows of a packed stream that are read.

        Returns:
            These rows, ascending and distinct; and for each token that is read its
            place among them, None where they are one for each in the same order.
        """
        rows = [
            packed.rows_of(number)[np.asarray(places)]
            if len(places) > 1 or places[0] != packed.position_ids[last]
            else np.array([last])
            for number, (places, last) in enumerate(
                zip(self.positions, packed.last_rows, strict=True)
            )
        ]
        found = np.concatenate(rows)
        distinct, places = np.unique(found, return_inverse=True)
        return distinct, None if np.array_equal(distinct, found) else places

    def reduce(self, read: F32) -> F32:
        """Turn what was read, (num_read, ..., hidden_size), into rows of the result."""
        if not self.is_mean:
            return read
        starts = np.cumsum([0, *self.num_read[:-1]])
        counts = np.array(self.num_read, np.float64)
        sums = np.add.reduceat(read.astype(np.float64), starts, axis=0)
        mean: F32 = (sums.T / counts).T.astype(np.float32)
        return mean
