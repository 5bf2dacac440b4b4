"""Token ids of many prompts -> one packed stream where a shared prefix is stored once.

Prompts go into a token trie. A node's tokens are a *segment*; a segment's keys are its
ancestors' rows and its own, causal within. The transformation is exact: a token's
residual depends on its ancestors and on nothing else.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]
Tokens = Sequence[int] | Ints
# Token ids are written in so many bits where they are ordered.
_ID_BITS = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of tokens that the same prompts share.

    Args:
        start: First row in the packed stream.
        stop: Row after the last.
        parent: Index of the segment before it in its prompts, -1 at the beginning.
    """

    start: int
    stop: int
    parent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPrompts:
    """Many prompts in one stream without padding.

    Args:
        token_ids: Distinct tokens, (num_tokens,).
        position_ids: Each token's position in its own prompts, (num_tokens,).
        rotary_lengths: Which rotary frequencies each token needs, (num_tokens,).
        segments: Parents before children; rows ascend.
        last_rows: Row of each prompt's last token, (num_prompts,).
    """

    token_ids: Ints
    position_ids: Ints
    rotary_lengths: Ints
    segments: tuple[Segment, ...]
    last_rows: Ints

    @property
    def num_tokens(self) -> int:
        """Distinct tokens: the rows of the stream."""
        return len(self.token_ids)

    def rows_of(self, prompt: int) -> Ints:
        """Find the rows of one prompt's tokens, in order."""
        last = int(self.last_rows[prompt])
        index = bisect_right(self.segments, last, key=lambda each: each.start) - 1
        stop = last + 1
        parts = []
        while index >= 0:
            parts.append(np.arange(self.segments[index].start, stop))
            index = self.segments[index].parent
            stop = self.segments[index].stop
        return np.concatenate(parts[::-1])


def pack_prompts(
    prompts: Sequence[Tokens],
    rotary_lengths: Sequence[int],
    kinds: Sequence[int] | None = None,
) -> PackedPrompts:
    """Pack prompts, each of at least one token.

    Args:
        prompts: Token ids of each prompt.
        rotary_lengths: One number a prompt; only prompts with equal numbers share.
        kinds: Likewise, if it is given.
    """
    token_ids = [np.asarray(prompt, np.int64) for prompt in prompts]
    keys = [_ordered_bytes(ids) for ids in token_ids]
    sharing = [*zip(rotary_lengths, kinds or [0] * len(prompts), strict=True)]
    order = sorted(range(len(prompts)), key=lambda i: (sharing[i], keys[i]))
    trie = _Trie(prompts=token_ids, rotary_lengths=rotary_lengths, order=order)
    start = 0
    for _, run in groupby(order, lambda i: sharing[i]):
        stop = start + len(list(run))
        trie.add(range(start, stop))
        start = stop
    return trie.pack()


def pack_marked(
    prompts: Sequence[Tokens], rotary_lengths: Sequence[int], marks: Sequence[Ints]
) -> tuple[PackedPrompts, Ints]:
    """Pack prompts whose tokens are marked; those share only what is marked alike.

    Args:
        prompts: Token ids of each prompt.
        rotary_lengths: As for ``pack_prompts``.
        marks: The mark of each token of each prompt.

    Returns:
        The stream, and the marks of its rows.
    """
    kinds = [int(each[0]) for each in marks]
    if all((each == each[0]).all() for each in marks):
        packed = pack_prompts(prompts, rotary_lengths, kinds)
        found = np.empty(packed.num_tokens, np.int64)
        for number, kind in enumerate(kinds):
            found[packed.rows_of(number)] = kind
        return packed, found
    # Tokens and marks together are numbered, and these numbers packed.
    both = [
        (np.asarray(each, np.int64) & _ID_BITS) | (mark << 32)
        for each, mark in zip(prompts, marks, strict=True)
    ]
    known, numbers = np.unique(np.concatenate(both), return_inverse=True)
    cuts = np.cumsum([*map(len, both)])[:-1]
    packed = pack_prompts(np.split(numbers, cuts), rotary_lengths)
    rows = known[packed.token_ids]
    return replace(packed, token_ids=rows & _ID_BITS), rows >> 32


class DistinctTokens:
    """Counts the rows of a stream while prompts are added to it, without packing it.

    In sorted order a prompt shares most with one of its neighbours.
    """

    def __init__(self) -> None:
        self._sorted: dict[Hashable, list[bytes]] = defaultdict(list)

    def add(self, prompt: Tokens, kind: Hashable) -> int:
        """Add a prompt; return how many rows it adds to those of its kind before it."""
        prompts = self._sorted[kind]
        new = _ordered_bytes(np.asarray(prompt))
        at = bisect_left(prompts, new)
        shared = max(
            (_shared_tokens(new, near) for near in prompts[max(at - 1, 0) : at + 1]),
            default=0,
        )
        if shared < len(prompt):
            prompts.insert(at, new)
        return len(prompt) - shared


def _ordered_bytes(token_ids: Ints) -> bytes:
    """Write tokens so that bytes sort as the tokens do."""
    return token_ids.astype(">u4").tobytes()


def _shared_tokens(one: bytes, other: bytes) -> int:
    """Count the tokens that two prompts begin with alike."""
    size = min(len(one), len(other))
    return _agreement(
        np.frombuffer(one[:size], np.uint32), np.frombuffer(other[:size], np.uint32)
    )


def _agreement(one: NDArray[np.integer], other: NDArray[np.integer]) -> int:
    """Count the entries that arrays of one length begin with alike."""
    differs = one != other
    return int(differs.argmax()) if differs.any() else len(one)


@dataclass(slots=True, kw_only=True)
class _Trie:
    """The stream while it grows; sorted prompts make every subtree one run."""

    prompts: Sequence[Ints]
    rotary_lengths: Sequence[int]
    order: Sequence[int]
    num_tokens: int = 0
    token_ids: list[Ints] = field(default_factory=list)
    position_ids: list[Ints] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    last_rows: dict[int, int] = field(default_factory=dict)

    def add(self, group: range) -> None:
        """Add a run of the sorted order; a list of work: a chain of prefixes is long.

        A group is a range of the order, so that a chain costs no more than its prompts.
        """
        work = [(group, 0, -1)]
        while work:
            group, start, parent = work.pop()
            stop = self._shared_until(group, start)
            if stop > start:
                parent = self._append(self.order[group[0]], start, stop, parent)
            children = self._children(self._end_prompts(group, stop), stop)
            work += [(child, stop, parent) for child in reversed(children)]

    def pack(self) -> PackedPrompts:
        """Turn the lists into arrays."""
        last_rows = [self.last_rows[i] for i in range(len(self.prompts))]
        sizes = [segment.stop - segment.start for segment in self.segments]
        return PackedPrompts(
            token_ids=np.concatenate(self.token_ids),
            position_ids=np.concatenate(self.position_ids),
            rotary_lengths=np.repeat(np.array(self.lengths, np.int64), sizes),
            segments=tuple(self.segments),
            last_rows=np.array(last_rows, np.int64),
        )

    def _shared_until(self, group: range, start: int) -> int:
        """Find how far a sorted group agrees: as far as its first and its last."""
        first, last = (self.prompts[self.order[each]] for each in (group[0], group[-1]))
        if first is last:
            return len(first)
        end = min(len(first), len(last))
        return start + _agreement(first[start:end], last[start:end])

    def _children(self, group: range, position: int) -> list[range]:
        """Split a sorted group where the token at a position changes."""

        def token(prompt: int) -> int:
            return int(self.prompts[prompt][position]) & _ID_BITS  # as in the order

        children, start = [], group.start
        while start < group.stop:
            here = token(self.order[start])
            stop = bisect_right(self.order, here, start, group.stop, key=token)
            children.append(range(start, stop))
            start = stop
        return children

    def _append(self, prompt: int, start: int, stop: int, parent: int) -> int:
        row, self.num_tokens = self.num_tokens, self.num_tokens + stop - start
        self.token_ids.append(self.prompts[prompt][start:stop])
        self.position_ids.append(np.arange(start, stop))
        self.lengths.append(self.rotary_lengths[prompt])
        self.segments.append(Segment(start=row, stop=self.num_tokens, parent=parent))
        return len(self.segments) - 1

    def _end_prompts(self, group: range, stop: int) -> range:
        """Note the last row of the prompts that end here; return the longer ones."""
        for at in group:
            if len(self.prompts[self.order[at]]) > stop:
                return range(at, group.stop)
            self.last_rows[self.order[at]] = self.num_tokens - 1
        return range(0)
