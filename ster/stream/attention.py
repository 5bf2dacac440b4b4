"""Who attends to whom in a packed stream, as index arrays of bounded size.

Segments of like shape are padded to one shape and attended to together, long ones in
pieces, so that neither many short prompts nor one long prompt makes many steps or one
huge one. Both decoders run the same batches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from ster.stream.packing import Ints, PackedPrompts

# Shapes are rounded up to this, so that a set of prompts needs few of them.
ROUNDING = 4
# Queries in one piece of a long prompt: few enough to bound it, and enough that their
# keys are worth gathering.
MAX_QUERIES = 256
MIN_QUERIES = 32
# Position of a padding key: after every query, so that none sees it.
NOWHERE = np.iinfo(np.int32).max


Array = TypeVar("Array")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionBatch(Generic[Array]):
    """Some queries and the keys that they may see, padded to one shape.

    Args:
        queries: Which queries, (num_groups, num_queries); padding repeats a query.
        keys: Stream rows of their keys, (num_groups, num_keys); padding repeats a row.
            None is all rows, for one group.
        query_positions: (num_groups, num_queries).
        key_positions: (num_groups, num_keys); padding stands after every query.

    A query sees the keys at its own position and before, a window of them where the
    layer has one. Every query sees itself.
    """

    queries: Array
    keys: Array | None
    query_positions: Array
    key_positions: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(Generic[Array]):
    """All attention of a stream in one layer.

    Args:
        rows: Stream rows that are queries, (num_queries,); None where every row is one.
        batches: Together they hold every query once.
        order: For each query, its place among the batches' results laid end to end.
        window: How many tokens a query sees, itself included; None is all.
    """

    rows: Array | None
    batches: tuple[AttentionBatch[Array], ...]
    order: Array
    window: int | None


def next_token_attention(position: int, window: int | None) -> Attention[Ints]:
    """Let one token at a position see all that the cache holds, itself included."""
    first = np.zeros((1, 1), np.int64)
    batch = AttentionBatch(
        queries=first,
        keys=None,
        query_positions=first + position,
        key_positions=np.arange(position + 1)[None],
    )
    return Attention(rows=None, batches=(batch,), order=first[0], window=window)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Consecutive queries of one segment, before padding."""

    queries: Ints
    keys: Ints
    query_positions: Ints
    key_positions: Ints


def plan_attention(
    packed: PackedPrompts,
    *,
    window: int | None,
    max_pairs: int,
    max_keys: int,
    rows: Ints | None = None,
) -> Attention[Ints]:
    """Plan one layer's attention over a packed stream.

    Args:
        packed: The stream.
        window: The layer's sliding window.
        max_pairs: Most query-key pairs in one batch, padding included; a piece of
            ``MIN_QUERIES`` may exceed it.
        max_keys: Most keys in one batch, each counted for every group that sees it; one
            group may exceed it.
        rows: The rows whose results are wanted, ascending and distinct; None is all.
    """
    shapes: dict[tuple[int, int], list[_Group]] = defaultdict(list)
    for group in _groups(packed, window, max_pairs, rows):
        shapes[_rounded(group.queries.size), _rounded(group.keys.size)].append(group)
    batches = []
    for (num_queries, num_keys), groups in sorted(shapes.items()):
        fitting = min(max_pairs // (num_queries * num_keys), max_keys // num_keys)
        step = max(1, fitting)
        batches += [
            _pad(groups[at : at + step], num_queries, num_keys)
            for at in range(0, len(groups), step)
        ]
    total = packed.num_tokens if rows is None else len(rows)
    return Attention(
        rows=rows, batches=tuple(batches), order=_order(batches, total), window=window
    )


def _groups(
    packed: PackedPrompts, window: int | None, max_pairs: int, rows: Ints | None
) -> Iterator[_Group]:
    """Cut every segment's queries into groups and find the rows that each may see."""
    parents = {segment.parent for segment in packed.segments}
    chains: dict[int, Ints] = {}
    all_rows = np.arange(packed.num_tokens, dtype=np.int32)
    for index, segment in enumerate(packed.segments):
        before = chains[segment.parent] if segment.parent >= 0 else all_rows[:0]
        chain = np.concatenate([before, all_rows[segment.start : segment.stop]])
        if index in parents:
            chains[index] = chain
        wanted, first = chain[len(before) :], segment.start
        if rows is not None:
            first = int(np.searchsorted(rows, segment.start))
            wanted = rows[first : np.searchsorted(rows, segment.stop)]
        step = _step(len(chain), max_pairs)
        for at in range(0, len(wanted), step):
            queries = wanted[at : at + step]
            keys = chain[: len(before) + int(queries[-1]) - segment.start + 1]
            if window is not None:
                oldest = int(packed.position_ids[queries[0]]) - window + 1
                keys = keys[max(oldest, 0) :]
            yield _Group(
                queries=np.arange(first + at, first + at + len(queries)),
                keys=keys,
                query_positions=packed.position_ids[queries],
                key_positions=packed.position_ids[keys],
            )


def _step(num_keys: int, max_pairs: int) -> int:
    """Choose how many queries go together, so that padding keeps within the bound."""
    fitting = max_pairs // _rounded(num_keys) // ROUNDING * ROUNDING
    return min(MAX_QUERIES, max(MIN_QUERIES, fitting))


def _pad(groups: list[_Group], num_queries: int, num_keys: int) -> AttentionBatch[Ints]:
    def padded(values: Ints, size: int, filler: int) -> Ints:
        filling = np.full(size - len(values), filler, np.int32)
        return np.concatenate([values, filling], dtype=np.int32)

    return AttentionBatch(
        queries=np.stack(
            [padded(g.queries, num_queries, g.queries[0]) for g in groups]
        ),
        keys=np.stack([padded(g.keys, num_keys, g.keys[0]) for g in groups]),
        query_positions=np.stack(
            [
                padded(g.query_positions, num_queries, g.query_positions[0])
                for g in groups
            ]
        ),
        key_positions=np.stack(
            [padded(g.key_positions, num_keys, NOWHERE) for g in groups]
        ),
    )


def _order(batches: list[AttentionBatch[Ints]], num_queries: int) -> Ints:
    order = np.empty(num_queries, np.int64)
    flat = np.concatenate([batch.queries.ravel() for batch in batches])
    # A padding query repeats a real one, keys and all: either result will do.
    order[flat] = np.arange(len(flat))
    return order


def _rounded(size: int) -> int:
    return -(-size // ROUNDING) * ROUNDING
