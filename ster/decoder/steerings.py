"""What is done to a stream after a layer, as a decoder holds it during a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from ster.decoder.contract import Steers
from ster.stream.changes import (
    Add,
    Deltas,
    Move,
    Moves,
    Treatments,
    are_same,
    changes_of,
)
from ster.stream.packing import Ints

Array = TypeVar("Array")
# Vectors (num_treatments, hidden_size) to add, or as many moves: one for each number.
Step: TypeAlias = Array | Moves[Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering(Generic[Array]):
    """What is done to the rows of a stream.

    Args:
        steps: By layer, what is done after it, step by step.
        which: The number in each step of each row, (num_tokens,); None is the first for
            all.
        top: After this layer ...
        which_at_top: ... there are other rows, with these numbers.
    """

    steps: Mapping[int, Sequence[Step[Array]]]
    which: Ints | None = None
    top: int | None = None
    which_at_top: Ints | None = None

    def add(self, decoder: Steers[Array], hidden: Array, layer: int) -> Array:
        """Do what belongs after a layer, if anything does."""
        which = self.which_at_top if layer == self.top else self.which
        for step in self.steps.get(layer, ()):
            if isinstance(step, Moves):
                hidden = decoder.move(hidden, step, which)
            else:
                hidden = decoder.steer(hidden, step, which)
        return hidden


class Steerings(Generic[Array]):
    """Steerings as a decoder holds them during a run.

    Args:
        decoder: What holds arrays, and does what is to be done.
        deltas: What each of them does.
        texts: As for ``Treatments``.
    """

    def __init__(
        self,
        decoder: Steers[Array],
        deltas: Sequence[Deltas],
        texts: Iterable[tuple[int, int]] = (),
    ) -> None:
        self._decoder = decoder
        self.treatments = Treatments(deltas, texts)
        self._deltas = self.treatments.deltas
        layers = sorted({layer for each in self._deltas for layer in each})
        self._steps = {layer: self._bring(layer) for layer in layers}

    def parting(self, used: Ints) -> int | None:
        """Find the layer after which rows of some numbers are no longer treated alike.

        Args:
            used: The numbers, as ``Treatments`` gives them.
        """
        first, *others = (self._deltas[each] for each in np.unique(used))
        for layer in self._steps:
            for other in others:
                if not are_same(first.get(layer), other.get(layer)):
                    return layer
        return None

    def of(
        self, which: Ints, top: int | None = None, top_rows: Ints | None = None
    ) -> Steering[Array]:
        """Return what is done to rows, to each by its number.

        Args:
            which: The number of each row.
            top: After this layer there are other rows, ...
            top_rows: ... which are these.
        """
        if len(self._deltas) == 1:
            return Steering(steps=self._steps)
        at_top = which if top_rows is None else which[top_rows]
        return Steering(steps=self._steps, which=which, top=top, which_at_top=at_top)

    def below(self, layer: int, which: int) -> Steering[Array]:
        """Return what is done to rows of one number before a layer, as to others."""
        rows = np.array([which])
        return Steering(
            steps={
                each: [self._take(step, rows) for step in steps]
                for each, steps in self._steps.items()
                if each < layer
            }
        )

    def _bring(self, layer: int) -> list[Step[Array]]:
        """Put what is done after a layer together, of all numbers."""
        each = [changes_of(deltas.get(layer)) for deltas in self._deltas]
        size = next(change.hidden_size for changes in each for change in changes)
        nothing = np.zeros(size, np.float32)
        steps: list[Step[Array]] = []
        for column in zip_longest(*each):
            # A row has one change of a column, so the order of the two is free.
            if any(isinstance(change, Add) for change in column):
                vectors = [
                    change.vector if isinstance(change, Add) else nothing
                    for change in column
                ]
                steps.append(self._decoder.vectors(np.stack(vectors)))
            if any(isinstance(change, Move) for change in column):
                moves = [
                    change if isinstance(change, Move) else None for change in column
                ]
                steps.append(self._decoder.moves(Moves.of(moves, size)))
        return steps

    def _take(self, step: Step[Array], rows: Ints) -> Step[Array]:
        take = self._decoder.take
        if not isinstance(step, Moves):
            return take(step, rows)
        keep = step.keep_norm
        return Moves(
            directions=take(step.directions, rows),
            numbers=take(step.numbers, rows),
            keep_norm=None if keep is None else take(keep, rows),
        )
