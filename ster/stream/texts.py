"""Which keys each text sees while many texts grow together, a token at a time.

Texts begin together in one packed stream. What several of them begin with is a *stem*:
its keys are held once for all. The rest of a text is its *own*: its keys lie in a slot
of the text's number, the n-th own token at n. Texts that end leave no gap behind: the
last ones take their numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.stream.packing import Ints, PackedPrompts

# Shared tokens from which holding them once pays for looking at them apart.
MIN_STEM = 16

Array = TypeVar("Array")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnteringStem(Generic[Array]):
    """Tokens that several texts begin with, read just now.

    Args:
        number: Names its keys from now on.
        rows: Rows of the stream, (num_tokens,).
    """

    number: int
    rows: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Entering(Generic[Array]):
    """Where the keys of a stream that was just read go.

    Args:
        stems: Those that are new.
        first: Number of the first text that enters; the others follow it.
        rows: Rows of the stream of each text's own tokens, (num_texts, longest); what
            pads them is any row.
    """

    stems: tuple[EnteringStem[Array], ...]
    first: int
    rows: Array

    def taken_from(self, rows: Array) -> Entering[Array]:
        """Say the same of another stream, in which this one's rows are those."""
        return Entering(
            stems=tuple(
                EnteringStem(number=each.number, rows=rows[each.rows])  # type: ignore[index]
                for each in self.stems
            ),
            first=self.first,
            rows=rows[self.rows],  # type: ignore[index]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenStem(Generic[Array]):
    """A stem and the texts that begin with it.

    Args:
        number: Of the stem.
        start: Position of its first token.
        stop: Position after its last.
        texts: Numbers of the texts, (num_texts_of_it,).
    """

    number: int
    start: int
    stop: int
    texts: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTokens(Generic[Array]):
    """Who attends to what where each text has one new token.

    Args:
        stems: In the order of their positions.
        num_stem_keys: Where the last of them stops, 0 without any.
        lengths: Own tokens of each text with the new one, (num_texts,).
        num_own_keys: The most of these.
        seen: Which keys each text sees, (num_texts, num_stem_keys + num_own_keys): of
            stems by their positions, then its own; None where everything is seen.
    """

    stems: tuple[SeenStem[Array], ...]
    num_stem_keys: int
    lengths: Array
    num_own_keys: int
    seen: Array | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """What becomes of the numbers where texts leave.

    Args:
        order: The former number of each text that stays, (num_texts,).
        moves: From which number to which a text moves.
        stems: Those that no text begins with any more.
    """

    order: Ints
    moves: tuple[tuple[int, int], ...]
    stems: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Text:
    """One text.

    Args:
        stems: What it begins with.
        own: The position of the first token of its own.
        length: Its own tokens.
    """

    stems: tuple[int, ...]
    own: int
    length: int


@dataclass(slots=True)
class Texts:
    """The texts at work, and where their keys lie. Index arithmetic only."""

    _texts: list[_Text] = field(default_factory=list)
    # By number, from which position to which.
    _stems: dict[int, tuple[int, int]] = field(default_factory=dict)
    _next_stem: int = 0

    def __len__(self) -> int:
        """Count the texts."""
        return len(self._texts)

    @property
    def positions(self) -> Ints:
        """The position of each text's last token, (num_texts,)."""
        return np.array([each.own + each.length - 1 for each in self._texts], np.int64)

    def enter(self, packed: PackedPrompts) -> Entering[Ints]:
        """Number the texts of a stream, in their order, after those at work."""
        chains = [_chain(packed, int(row)) for row in packed.last_rows]
        numbers, stems = {}, []
        for segment in sorted(_find_stems(packed, chains)):
            stems.append(self._add_stem(packed, segment))
            numbers[segment] = stems[-1].number
        first, own = len(self._texts), []
        for text, chain in enumerate(chains):
            begins = tuple(numbers[each] for each in chain if each in numbers)
            start = self._stems[begins[-1]][1] if begins else 0
            own.append(packed.rows_of(text)[start:])
            self._texts.append(_Text(begins, start, len(own[-1])))
        rows = np.zeros((len(own), max(map(len, own))), np.int64)
        for text, each in enumerate(own):
            rows[text, : len(each)] = each
        return Entering(stems=tuple(stems), first=first, rows=rows)

    def _add_stem(self, packed: PackedPrompts, segment: int) -> EnteringStem[Ints]:
        number, self._next_stem = self._next_stem, self._next_stem + 1
        rows = np.arange(packed.segments[segment].start, packed.segments[segment].stop)
        start = int(packed.position_ids[rows[0]])
        self._stems[number] = start, start + len(rows)
        return EnteringStem(number=number, rows=rows)

    def grow(self) -> None:
        """Give every text one more token of its own."""
        self._texts = [
            _Text(each.stems, each.own, each.length + 1) for each in self._texts
        ]

    def next_tokens(self, window: int | None) -> NextTokens[Any]:
        """Tell what the last token of every text sees, itself included."""
        texts = defaultdict(list)
        for number, text in enumerate(self._texts):
            for stem in text.stems:
                texts[stem].append(number)
        stems = tuple(
            SeenStem(
                number=stem,
                start=self._stems[stem][0],
                stop=self._stems[stem][1],
                texts=np.array(texts[stem], np.int64),
            )
            for stem in sorted(texts, key=self._stems.__getitem__)
        )
        num_stem_keys = max((stem.stop for stem in stems), default=0)
        lengths = np.array([each.length for each in self._texts], np.int64)
        return NextTokens(
            stems=stems,
            num_stem_keys=num_stem_keys,
            lengths=lengths,
            num_own_keys=int(lengths.max()),
            seen=self._seen(num_stem_keys, lengths, window),
        )

    def leave(self, gone: Collection[int]) -> Leaving:
        """Let texts go; the last ones take their numbers."""
        num_left = len(self._texts) - len(gone)
        order = np.arange(num_left)
        late = (each for each in range(num_left, len(self._texts)) if each not in gone)
        order[sorted(each for each in gone if each < num_left)] = [*late]
        self._texts = [self._texts[each] for each in order]
        used = {stem for text in self._texts for stem in text.stems}
        dropped = tuple(self._stems.keys() - used)
        for stem in dropped:
            del self._stems[stem]
        moves = tuple((int(a), b) for b, a in enumerate(order) if a != b)
        return Leaving(order=order, moves=moves, stems=dropped)

    def _seen(
        self, num_stem_keys: int, lengths: Ints, window: int | None
    ) -> NDArray[np.bool_] | None:
        starts = np.array([text.own for text in self._texts])
        columns = np.arange(int(lengths.max()))
        # The positions of the keys; of what pads them, after every text's last.
        positions = np.concatenate(
            [
                np.broadcast_to(np.arange(num_stem_keys), (len(starts), num_stem_keys)),
                starts[:, None] + columns,
            ],
            axis=1,
        )
        last = (starts + lengths - 1)[:, None]
        seen = positions <= last
        seen[:, :num_stem_keys] &= positions[:, :num_stem_keys] < starts[:, None]
        if window is not None:
            seen &= positions > last - window
        return None if seen.all() else seen


def _chain(packed: PackedPrompts, last_row: int) -> list[int]:
    """Find the segments of a prompt, from its beginning to its last row."""
    index = bisect_right(packed.segments, last_row, key=lambda each: each.start) - 1
    chain = []
    while index >= 0:
        chain.append(index)
        index = packed.segments[index].parent
    return chain[::-1]


def _find_stems(packed: PackedPrompts, chains: Sequence[Sequence[int]]) -> set[int]:
    """Find the segments whose keys are held once.

    Several texts go through them. A short one is none, unless one begins where it ends.
    """
    texts = Counter(segment for chain in chains for segment in chain)
    stems: set[int] = set()
    before_stems: set[int] = set()
    for index in reversed(range(len(packed.segments))):
        segment = packed.segments[index]
        is_long = segment.stop - segment.start >= MIN_STEM
        if texts[index] > 1 and (is_long or index in before_stems):
            stems.add(index)
            before_stems.add(segment.parent)
    return stems
