"""Who attends to whom, and where keys go, as index arrays on a GPU."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from ster.stream.attention import Attention, AttentionBatch
from ster.stream.packing import Ints
from ster.stream.texts import Entering, EnteringStem, NextTokens, SeenStem


def indices(values: Ints) -> mx.array:
    """Copy indices."""
    return mx.array(values.astype(np.int32))


def bring_attention(attention: Attention[Ints]) -> Attention[mx.array]:
    """Copy who attends to whom within a stream."""
    rows = attention.rows
    return Attention(
        rows=None if rows is None else indices(rows),
        batches=tuple(map(_bring_batch, attention.batches)),
        order=indices(attention.order),
        window=attention.window,
    )


def _bring_batch(batch: AttentionBatch[Ints]) -> AttentionBatch[mx.array]:
    return AttentionBatch(
        queries=indices(batch.queries),
        keys=indices(batch.keys),
        query_positions=indices(batch.query_positions),
        key_positions=indices(batch.key_positions),
    )


def bring_following(following: NextTokens[Any]) -> NextTokens[mx.array]:
    """Copy what new tokens attend to."""
    seen = following.seen
    return NextTokens(
        stems=tuple(map(_bring_seen_stem, following.stems)),
        num_stem_keys=following.num_stem_keys,
        lengths=indices(following.lengths),
        num_own_keys=following.num_own_keys,
        seen=None if seen is None else mx.array(seen),
    )


def _bring_seen_stem(stem: SeenStem[Any]) -> SeenStem[mx.array]:
    return SeenStem(
        number=stem.number,
        start=stem.start,
        stop=stem.stop,
        texts=indices(stem.texts),
    )


def bring_entering(entering: Entering[Ints]) -> Entering[mx.array]:
    """Copy where the keys of a stream go."""
    return Entering(
        stems=tuple(
            EnteringStem(number=stem.number, rows=indices(stem.rows))
            for stem in entering.stems
        ),
        first=entering.first,
        rows=indices(entering.rows),
    )
