"""What is done to the stream of a model that runs as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mlx.core as mx
import numpy as np

from ster.decoder.mlx.indices import indices
from ster.decoder.mlx.moves import bring_moves, move
from ster.decoder.mlx.taps import Change
from ster.decoder.steerings import Steerings
from ster.decoder.whole import F32
from ster.stream.changes import Deltas, Moves, adds_everywhere, changes_of
from ster.stream.packing import Ints


class WholeSteering:
    """One steering of a model that runs as a whole.

    Args:
        deltas: What is done.
        prompt_lengths: How many tokens of each text are its prompt's.

    Attributes:
        vectors: By layer, what is added to all rows, where nothing else is done.
    """

    def __init__(self, deltas: Deltas, prompt_lengths: Sequence[int]) -> None:
        self.vectors: Mapping[int, mx.array] = {}
        self._rows = _Rows()
        self._steerings: Steerings[mx.array] | None = None
        if adds_everywhere(deltas):
            self.vectors = {layer: mx.array(_sum(deltas, layer)) for layer in deltas}
            return
        texts = ((0, length) for length in prompt_lengths)
        self._steerings = Steerings(self._rows, [deltas], texts)

    def change(
        self, prompt_lengths: Sequence[int], start: int, stop: int
    ) -> Change | None:
        """Make what changes the stream of texts, from one position to another.

        Args:
            prompt_lengths: How many tokens of each text are its prompt's.
            start: The first position.
            stop: The one after the last.
        """
        steerings = self._steerings
        if steerings is None:
            return None
        treated = [
            steerings.treatments.of(0, length, stop, start) for length in prompt_lengths
        ]
        steering = steerings.of(np.concatenate(treated))

        def change(layer: int, hidden: mx.array) -> mx.array:
            if layer not in steering.steps:
                return hidden
            # In f32, as elsewhere; but the stream keeps its own width.
            rows = hidden.reshape(-1, hidden.shape[-1]).astype(mx.float32)
            made = steering.add(self._rows, rows, layer)
            return made.reshape(hidden.shape).astype(hidden.dtype)

        return change


def _sum(deltas: Deltas, layer: int) -> F32:
    vectors = [each.vector for each in changes_of(deltas[layer])]  # type: ignore[union-attr]
    total: F32 = sum(vectors[1:], vectors[0])
    return total


class _Rows:
    """Rows as MLX has them; see ``contract.Steers``."""

    def take(self, hidden: mx.array, rows: Ints) -> mx.array:
        """Take some rows."""
        return hidden[indices(rows)]

    def vectors(self, values: F32) -> mx.array:
        """Copy vectors."""
        return mx.array(values)

    def steer(
        self, hidden: mx.array, vectors: mx.array, which: Ints | None
    ) -> mx.array:
        """Add a vector to every row."""
        return hidden + (vectors[0] if which is None else vectors[indices(which)])

    def moves(self, moves: Moves[F32]) -> Moves[mx.array]:
        """Copy moves."""
        return bring_moves(moves)

    def move(
        self, hidden: mx.array, moves: Moves[mx.array], which: Ints | None
    ) -> mx.array:
        """Move every row along a direction."""
        return move(hidden, moves, None if which is None else indices(which))
