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


Array = TypeVar("Array")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionBatch(Generic[Array]):
    """Some queries and the keys that they may see, padded to one shape.

    Args:
        queries: Which queries, (num_groups, num_queries); padding repeats a query.
        keys: Stream rows of their keys, (num_groups, num_keys), some of them padding.
        query_positions: (num_groups, num_queries).
        key_positions: (num_groups, num_keys); padding stands after every query.

    A query sees the keys at its own position and before, a window of them where the
    layer has one. Every query sees itself.
    """

    queries: Array
    keys: Array
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Consecutive queries of one segment, and which of its chain they may see.

    Args:
        queries: Which queries.
        query_positions: Their positions.
        chain: The rows of the segment's ancestors and its own, in the prompt's order,
            then a few more rows, so that a padded run of keys may end after it.
        start: The first key in the chain, which is its position too.
        num_keys: How many keys follow it.
    """

    queries: Ints
    query_positions: Ints
    chain: Ints
    start: int
    num_keys: int


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
    num_positions = int(packed.position_ids.max()) + 1 + ROUNDING
    positions = np.arange(num_positions, dtype=np.int32)
    for group in _groups(packed, window, max_pairs, rows):
        shapes[_rounded(group.queries.size), _rounded(group.num_keys)].append(group)
    batches = []
    for (num_queries, num_keys), groups in sorted(shapes.items()):
        fitting = min(max_pairs // (num_queries * num_keys), max_keys // num_keys)
        step = max(1, fitting)
        batches += [
            _pad(groups[at : at + step], num_queries, num_keys, positions)
            for at in range(0, len(groups), step)
        ]
    total = packed.num_tokens if rows is None else len(rows)
    return Attention(
        rows=rows, batches=tuple(batches), order=_order(batches, total), window=window
    )


def _groups(
    packed: PackedPrompts, window: int | None, max_pairs: int, rows: Ints | None
) -> Iterator[_Group]:
    """Cut every segment's queries into groups and find the keys that each may see."""
    parents = {segment.parent for segment in packed.segments}
    before: dict[int, Ints] = {-1: np.empty(0, np.int32)}
    for index, segment in enumerate(packed.segments):
        ancestors = before[segment.parent]
        own: Ints = np.arange(segment.start, segment.stop, dtype=np.int32)
        chain = np.concatenate([ancestors, own, own[:1].repeat(ROUNDING)])
        if index in parents:
            before[index] = chain[:-ROUNDING]
        wanted, first = own, segment.start
        if rows is not None:
            first = int(np.searchsorted(rows, segment.start))
            wanted = rows[first : np.searchsorted(rows, segment.stop)]
        step = _step(len(ancestors) + len(own), max_pairs)
        for at in range(0, len(wanted), step):
            queries = wanted[at : at + step]
            stop = len(ancestors) + int(queries[-1]) - segment.start + 1
            start = 0
            if window is not None:
                oldest = int(packed.position_ids[queries[0]]) - window + 1
                start = max(oldest, 0)
            yield _Group(
                queries=np.arange(first + at, first + at + len(queries)),
                query_positions=packed.position_ids[queries],
                chain=chain,
                start=start,
                num_keys=stop - start,
            )


def _step(num_keys: int, max_pairs: int) -> int:
    """Choose how many queries go together, so that padding keeps within the bound."""
    fitting = max_pairs // _rounded(num_keys) // ROUNDING * ROUNDING
    return min(MAX_QUERIES, max(MIN_QUERIES, fitting))


def _pad(
    groups: list[_Group], num_queries: int, num_keys: int, positions: Ints
) -> AttentionBatch[Ints]:
    def queries(values: Ints) -> Ints:
        padding = values[:1].repeat(num_queries - len(values))
        return np.concatenate([values, padding], dtype=np.int32)

    def keys(values: list[Ints]) -> Ints:
        # A group alone is a view: a long prompt's lists would grow with its square.
        return values[0][None] if len(values) == 1 else np.stack(values)

    spans = [slice(group.start, group.start + num_keys) for group in groups]
    return AttentionBatch(
        queries=np.stack([queries(group.queries) for group in groups]),
        query_positions=np.stack([queries(each.query_positions) for each in groups]),
        keys=keys([each.chain[s] for each, s in zip(groups, spans, strict=True)]),
        # What pads a run of keys counts on from its end, after every query.
        key_positions=keys([positions[span] for span in spans]),
    )


def _order(batches: list[AttentionBatch[Ints]], num_queries: int) -> Ints:
    order = np.empty(num_queries, np.int64)
    flat = np.concatenate([batch.queries.ravel() for batch in batches])
    # A padding query repeats a real one, keys and all: either result will do.
    order[flat] = np.arange(len(flat))
    return order


def _rounded(size: int) -> int:
    return -(-size // ROUNDING) * ROUNDING
