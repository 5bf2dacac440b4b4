"""Token ids of many prompts -> one packed stream where a shared prefix is stored once.

Prompts go into a token trie. A node's tokens are a *segment*; a segment's keys are its
ancestors' rows and its own, causal within. The transformation is exact: a token's
residual depends on its ancestors and on nothing else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
_Node = dict[int, "_Node"]


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
        starts = [segment.start for segment in self.segments]
        index, stop = bisect_right(starts, last) - 1, last + 1
        parts = []
        while index >= 0:
            parts.append(np.arange(self.segments[index].start, stop))
            index = self.segments[index].parent
            stop = self.segments[index].stop
        return np.concatenate(parts[::-1])


def pack_prompts(
    prompts: Sequence[Sequence[int]], rotary_lengths: Sequence[int]
) -> PackedPrompts:
    """Pack prompts, each of at least one token.

    Args:
        prompts: Token ids of each prompt.
        rotary_lengths: One number a prompt; only prompts with equal numbers share.
    """
    order = sorted(range(len(prompts)), key=lambda i: (rotary_lengths[i], prompts[i]))
    trie = _Trie(prompts=prompts, rotary_lengths=rotary_lengths)
    for group in _runs(order, lambda i: rotary_lengths[i]):
        trie.add(group)
    return trie.pack()


class DistinctTokens:
    """Counts the rows of a stream while prompts are added to it, without packing it."""

    def __init__(self) -> None:
        self._roots: dict[int, _Node] = {}

    def add(self, prompt: Sequence[int], rotary_length: int) -> int:
        """Add a prompt; return how many rows it adds to those before it."""
        node, added = self._roots.setdefault(rotary_length, {}), 0
        for token in prompt:
            if token not in node:
                node[token] = {}
                added += 1
            node = node[token]
        return added


@dataclass(slots=True, kw_only=True)
class _Trie:
    """The stream while it grows; sorted prompts make every subtree one run."""

    prompts: Sequence[Sequence[int]]
    rotary_lengths: Sequence[int]
    token_ids: list[int] = field(default_factory=list)
    position_ids: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    last_rows: dict[int, int] = field(default_factory=dict)

    def add(self, group: list[int]) -> None:
        """Add sorted prompts; a list of work, since a chain of prefixes may be long."""
        work = [(group, 0, -1)]
        while work:
            group, start, parent = work.pop()
            stop = self._shared_until(group, start)
            if stop > start:
                parent = self._append(group[0], start, stop, parent)
            longer = self._end_prompts(group, stop)
            children = _runs(longer, partial(self._token, stop))
            work += [(child, stop, parent) for child in reversed(children)]

    def pack(self) -> PackedPrompts:
        """Turn the lists into arrays."""
        last_rows = [self.last_rows[i] for i in range(len(self.prompts))]
        return PackedPrompts(
            token_ids=np.array(self.token_ids, np.int64),
            position_ids=np.array(self.position_ids, np.int64),
            rotary_lengths=np.array(self.lengths, np.int64),
            segments=tuple(self.segments),
            last_rows=np.array(last_rows, np.int64),
        )

    def _shared_until(self, group: list[int], start: int) -> int:
        """Find how far a sorted group agrees: as far as its first and its last."""
        first, last = self.prompts[group[0]], self.prompts[group[-1]]
        stop, end = start, min(len(first), len(last))
        while stop < end and first[stop] == last[stop]:
            stop += 1
        return stop

    def _token(self, position: int, prompt: int) -> int:
        return self.prompts[prompt][position]

    def _append(self, prompt: int, start: int, stop: int, parent: int) -> int:
        row = len(self.token_ids)
        self.token_ids += self.prompts[prompt][start:stop]
        self.position_ids += range(start, stop)
        self.lengths += [self.rotary_lengths[prompt]] * (stop - start)
        self.segments.append(Segment(start=row, stop=row + stop - start, parent=parent))
        return len(self.segments) - 1

    def _end_prompts(self, group: list[int], stop: int) -> list[int]:
        """Note the last row of the prompts that end here; return the longer ones."""
        for ended, prompt in enumerate(group):
            if len(self.prompts[prompt]) > stop:
                return group[ended:]
            self.last_rows[prompt] = len(self.token_ids) - 1
        return []


def _runs(items: list[int], key: Callable[[int], int]) -> list[list[int]]:
    """Split a sorted list where a key changes."""
    return [list(run) for _, run in groupby(items, key)]
