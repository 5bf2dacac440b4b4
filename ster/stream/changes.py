"""What is done to a stream after a layer: along which direction, and where in a text.

Values only. The runs hand them to a decoder, which does what they say.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.stream.packing import Ints
from ster.stream.where import EVERYWHERE, Where

Array = TypeVar("Array")
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Add:
    """A vector that is added to rows.

    Args:
        vector: (hidden_size,).
        where: The tokens whose rows they are.
    """

    vector: F32
    where: Where = EVERYWHERE

    @property
    def hidden_size(self) -> int:
        """The width of the rows."""
        return len(self.vector)

    def is_same(self, other: Change) -> bool:
        """Whether the other does the same to a row."""
        return isinstance(other, Add) and np.array_equal(self.vector, other.vector)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Move:
    """Rows moved along a direction u, by how far they lie along it already.

    A row h with the projection p = h·u becomes ``h + clip(offset + slope·p, low, high)
    · u`` where p < below, and stays as it is elsewhere.

    Args:
        direction: u, of length 1, (hidden_size,).
        offset: What every row is moved by.
        slope: What is added for each unit of its projection.
        low: The least that a row is moved by.
        high: The most.
        below: Only rows that lie less far along it are moved.
        keep_norm: A row that is moved is scaled back to the length that it had.
        where: The tokens whose rows they are.
    """

    direction: F32
    offset: float = 0.0
    slope: float = 0.0
    low: float = -math.inf
    high: float = math.inf
    below: float = math.inf
    keep_norm: bool = False
    where: Where = EVERYWHERE

    @property
    def hidden_size(self) -> int:
        """The width of the rows."""
        return len(self.direction)

    @property
    def numbers(self) -> tuple[float, ...]:
        """Return the numbers of the formula: offset, slope, low, high, below."""
        return self.offset, self.slope, self.low, self.high, self.below

    def is_same(self, other: Change) -> bool:
        """Whether the other does the same to a row."""
        return (
            isinstance(other, Move)
            and (self.numbers, self.keep_norm) == (other.numbers, other.keep_norm)
            and np.array_equal(self.direction, other.direction)
        )


Change = Add | Move
# What is done after a layer, in this order; a vector (hidden_size,) is added to every
# row.
Delta = F32 | tuple[Change, ...]
# By layer.
Deltas = Mapping[int, Delta]


def changes_of(delta: Delta | None) -> tuple[Change, ...]:
    """Spell out what is done after a layer."""
    if delta is None:
        return ()
    return delta if isinstance(delta, tuple) else (Add(vector=delta),)


def wheres_of(deltas: Deltas) -> tuple[Where, ...]:
    """Return all the places where something is done, each once."""
    changes = (each for delta in deltas.values() for each in changes_of(delta))
    return tuple(dict.fromkeys(change.where for change in changes))


def needs_prompt(deltas: Deltas) -> bool:
    """Tell whether what is done to a token depends on where its prompt ends."""
    return any(where.needs_prompt for where in wheres_of(deltas))


def adds_everywhere(deltas: Deltas) -> bool:
    """Tell whether nothing is done but that vectors are added to every row."""
    changes = [each for delta in deltas.values() for each in changes_of(delta)]
    return all(isinstance(each, Add) and each.where == EVERYWHERE for each in changes)


def are_same(one: Delta | None, other: Delta | None) -> bool:
    """Tell whether two things that are done after a layer do the same to a row."""
    first, second = changes_of(one), changes_of(other)
    return len(first) == len(second) and all(
        a.is_same(b) for a, b in zip(first, second, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves(Generic[Array]):
    """Several moves, of which each row of a stream is given one.

    Args:
        directions: (num_moves, hidden_size).
        numbers: The ``Move.numbers`` of each, all finite, (num_moves, 5).
        keep_norm: 1 where rows are scaled back and 0 where not, (num_moves, 1); None
            where none are.
    """

    directions: Array
    numbers: Array
    keep_norm: Array | None

    @classmethod
    def of(cls, moves: Sequence[Move | None], hidden_size: int) -> Moves[F32]:
        """Put moves together; None moves no row."""
        nothing = Move(direction=np.zeros(hidden_size, np.float32))
        each = [nothing if move is None else move for move in moves]
        keep = np.array([[move.keep_norm] for move in each], np.float32)
        # Finite bounds, which no row comes near: GPUs may not compare with infinity.
        most = float(np.finfo(np.float32).max)
        numbers = np.clip([move.numbers for move in each], -most, most)
        return Moves(
            directions=np.stack([move.direction for move in each]),
            numbers=numbers.astype(np.float32),
            keep_norm=keep if keep.any() else None,
        )


class Treatments:
    """What is done to tokens, by number: to those of one number the same is done.

    Args:
        steerings: What each steering does.
        texts: Of every text the number of its steering, and how many of its tokens are
            its prompt's. Needed where a steering does not do the same to all tokens.

    Attributes:
        deltas: What is done to the rows of each number, wherever they are in a text.
    """

    def __init__(
        self, steerings: Sequence[Deltas], texts: Iterable[tuple[int, int]] = ()
    ) -> None:
        self.deltas: list[Deltas] = []
        self._wheres = [wheres_of(each) for each in steerings]
        self._is_plain = all({EVERYWHERE}.issuperset(each) for each in self._wheres)
        if self._is_plain:  # then a steering's number is that of all its tokens
            self.deltas = [*steerings]
            return
        # From which position on a text has which number, by its steering and prompt.
        self._spans: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        numbers: dict[tuple[int, tuple[Where, ...]], int] = {}
        for key in dict.fromkeys(texts):
            starts, found = self._cut(*key), []
            for start in starts:
                active = self._active(*key, start)
                treated = (key[0] if active else -1, active)
                if treated not in numbers:
                    numbers[treated] = len(numbers)
                    self.deltas.append(_only(steerings[key[0]], active))
                found.append(numbers[treated])
            self._spans[key] = starts, found

    def of(self, steering: int, prompt_length: int, stop: int, start: int = 0) -> Ints:
        """Number what is done to the tokens of a text.

        Args:
            steering: The text's.
            prompt_length: How many of its tokens are its prompt's.
            stop: The position after the last that is asked for.
            start: The first.
        """
        if self._is_plain:
            return np.full(stop - start, steering)
        starts, numbers = self._spans[steering, prompt_length]
        places = np.searchsorted(starts, np.arange(start, stop), side="right") - 1
        return np.array(numbers)[places]

    def at(self, steering: int, prompt_length: int, position: int) -> int:
        """Number what is done to one token."""
        if self._is_plain:
            return steering
        starts, numbers = self._spans[steering, prompt_length]
        return numbers[bisect_right(starts, position) - 1]

    def key(self, steering: int, prompt_length: int) -> tuple[int, ...]:
        """Tell texts apart that may not share all tokens that they begin with."""
        matters = any(each.needs_prompt for each in self._wheres[steering])
        return (prompt_length,) if matters else ()

    def _cut(self, steering: int, prompt_length: int) -> list[int]:
        """Find the positions where something begins or ends, the first among them."""
        spans = (each.span(prompt_length) for each in self._wheres[steering])
        return sorted({0, *(bound for span in spans for bound in span)})

    def _active(
        self, steering: int, prompt_length: int, position: int
    ) -> tuple[Where, ...]:
        """Find the places that a token is in."""
        spans = ((each, each.span(prompt_length)) for each in self._wheres[steering])
        return tuple(each for each, (a, b) in spans if a <= position < b)


def _only(deltas: Deltas, active: tuple[Where, ...]) -> Deltas:
    """Take of what is done to a text what is done in some places."""
    taken = {
        layer: tuple(
            replace(each, where=EVERYWHERE)
            for each in changes_of(delta)
            if each.where in active
        )
        for layer, delta in deltas.items()
    }
    return {layer: changes for layer, changes in taken.items() if changes}
