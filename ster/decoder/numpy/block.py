"""A block in numpy, on the cpu: the reference, made to be read.

Read it beside ``mlx.block``: the same classes in the same order. What is different here
is how work is spread: rows are independent outside attention, so a block runs slice by
slice on a pool of threads, each slice through small products that stay in its core's
cache, with BLAS itself held to one thread. The stream and the products' results lie
column by column in memory: BLAS multiplies such rows faster, and what stands between
two products runs along tokens, a thousand in a row.

All arithmetic and the residual stream are f32 whatever the precision; an f16 run rounds
the weights, the inputs of products, and keys and values to f16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ster.architecture import spec
from ster.decoder.contract import Cache, LayerInputs, Points
from ster.decoder.numpy.attention import Angles, SelfAttention, attend
from ster.decoder.numpy.experts import Experts
from ster.decoder.numpy.parts import F32, MLP, AnyNorm, Hidden, slice_rows
from ster.decoder.numpy.scratch import Scratch
from ster.decoder.numpy.texts import NumpyCache, attend_following
from ster.decoder.numpy.threads import Threads, quiet
from ster.points import ATTN_OUT, MLP_OUT, RESID_MID
from ster.stream.attention import Attention, AttentionBatch
from ster.stream.packing import Ints
from ster.stream.rotary import RotaryTables
from ster.stream.texts import NextTokens

# By point, the rows that are wanted: of all slices, or of one.
Found = Mapping[str, F32]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumpyBlock:
    """One block with its weights, run slice by slice on a pool of threads."""

    spec: spec.LayerSpec
    attention_norm: AnyNorm | None
    self_attn: SelfAttention
    attention_out_norm: AnyNorm | None
    feed_forward_norm: AnyNorm | None
    mlp: MLP | Experts
    feed_forward_out_norm: AnyNorm | None
    # Of keys and values.
    dtype: np.dtype[Any]
    threads: Threads
    scratch: Scratch

    def __call__(
        self,
        hidden: F32,
        inputs: LayerInputs[Any],
        cache: Cache[Any] | None,
        points: Points[F32] | None = None,
    ) -> F32:
        """Run the block; see ``contract.Block``."""
        with quiet():
            attention = inputs.attention
            if isinstance(attention, NextTokens):
                context = self._follow(hidden, inputs.rotary, attention, cache)
                return self._finish(hidden, context, points)
            q, k, v = self._project(hidden, inputs.rotary, attention.rows)
            if isinstance(cache, NumpyCache) and inputs.entering is not None:
                cache.enter(k, v, inputs.entering)
            context = self._attend(attention, q, k, v)
            rows = attention.rows
            resid = hidden if rows is None else hidden[rows]
            return self._finish(resid, context, points)

    def _follow(
        self,
        hidden: F32,
        rotary: Angles,
        following: NextTokens[Any],
        cache: Cache[Any] | None,
    ) -> F32:
        """Attend from the new token of each text."""
        if not isinstance(cache, NumpyCache):
            raise TypeError("new tokens attend to what a cache of this decoder holds")
        attn = self.self_attn
        if len(self._slices(len(hidden))) > 1:
            q, k, v = self._project(hidden, rotary, None)
        else:  # what one slice makes need not be gathered
            q, k, v = attn.project(self._normed(hidden), rotary, self.scratch)
        cache.append(k, v, following)
        return attend_following(following, q, cache, attn.spec, attn.sinks)

    def _project(
        self, hidden: F32, rotary: Angles, rows: Ints | None
    ) -> tuple[F32, Hidden, Hidden]:
        """Make queries, keys and values; keys and values at the run's width.

        Args:
            hidden: The stream.
            rotary: The angles of its rows.
            rows: Those that are queries; None is all.
        """
        attn, scratch, width = self.self_attn, self.scratch, self.dtype
        sizes = attn.spec
        num_queries = len(hidden) if rows is None else len(rows)
        kv_shape = len(hidden), sizes.num_key_value_heads, sizes.head_dim
        k, v = (scratch(name, *kv_shape, dtype=width) for name in "kv")
        q = scratch("q", num_queries, sizes.num_heads, sizes.head_dim)

        def project(part: slice) -> None:
            x, angles = self._normed(hidden[part]), _angles(rotary, part)
            if rows is None:
                q[part], k[part], v[part] = attn.project(x, angles, scratch)
            else:
                k[part], v[part] = attn.keys_values(x, angles, scratch)

        self.threads.map(project, self._slices(len(hidden)))
        if rows is not None:
            x, angles = self._normed(hidden[rows]), _angles(rotary, rows)
            q[:] = attn.queries(x, angles)
        return q, k, v

    def _normed(self, hidden: F32) -> F32:
        if self.attention_norm is None:
            return hidden
        return self.attention_norm(hidden, self.scratch.columns("x", *hidden.shape))

    def _attend(self, attention: Attention[Ints], q: F32, k: Hidden, v: Hidden) -> F32:
        """Attend batch by batch; each query's context takes its place."""
        context, attn = q.reshape(len(q), -1), self.self_attn

        def one(batch: AttentionBatch[Ints]) -> None:
            # No other batch reads these queries. Padding repeats one, so its result is
            # written twice, and equal.
            made = attend(batch, q, k, v, attn.spec, attn.sinks)
            context[batch.queries.ravel()] = made

        self.threads.map(one, attention.batches)
        return context

    def _finish(self, hidden: F32, context: F32, points: Points[F32] | None) -> F32:
        """Add attention and feed-forward part."""
        found = self._make_room(hidden, points)
        if isinstance(self.mlp, Experts):
            return self._finish_experts(hidden, context, self.mlp, found)
        scratch, mlp = self.scratch, self.mlp

        def finish(part: slice) -> None:
            x = scratch.columns("x", *hidden[part].shape)
            of_part = _cut(found, part)
            sums = self._add_attention(hidden[part], context[part], x, of_part)
            added = mlp(x, scratch)
            self._weigh(added, self.feed_forward_out_norm)
            _keep(of_part, MLP_OUT, added)
            np.add(sums, added, out=hidden[part])

        self.threads.map(finish, self._slices(len(hidden)))
        return hidden

    def _finish_experts(
        self, hidden: F32, context: F32, experts: Experts, found: Found
    ) -> F32:
        """Do the same where rows have to meet: an expert serves those of all slices."""
        x = np.empty(hidden.shape, np.float32)
        parts = self._slices(len(hidden))

        def begin(part: slice) -> None:
            of_part = _cut(found, part)
            hidden[part] = self._add_attention(
                hidden[part], context[part], x[part], of_part
            )

        def finish(part: slice) -> None:
            self._weigh(added[part], self.feed_forward_out_norm)
            _keep(_cut(found, part), MLP_OUT, added[part])
            hidden[part] += added[part]

        self.threads.map(begin, parts)
        added = experts(x, self.threads, self.scratch)
        self.threads.map(finish, parts)
        return hidden

    def _add_attention(self, resid: F32, context: F32, x: F32, found: Found) -> F32:
        """Add attention's part to rows; ``x`` becomes what the feed-forward part reads.

        Returns:
            The sums, which the feed-forward part joins.
        """
        sums = self.scratch.columns("sums", *resid.shape)
        self.self_attn.o_proj(context, sums)
        self._weigh(sums, self.attention_out_norm)
        _keep(found, ATTN_OUT, sums)
        if not self.spec.parallel:
            sums += resid
            _keep(found, RESID_MID, sums)
        read = resid if self.spec.parallel else sums
        if self.feed_forward_norm is None:
            x[:] = read
        else:
            self.feed_forward_norm(read, x)
        if self.spec.parallel:
            sums += resid
        return sums

    def _weigh(self, added: F32, norm: AnyNorm | None) -> None:
        """Normalise and scale, where they stand, rows that are to join the stream."""
        if norm is not None:
            norm(added, added)
        if self.spec.residual_multiplier != 1:
            added *= self.spec.residual_multiplier

    def _make_room(self, hidden: F32, points: Points[F32] | None) -> Found:
        """Make arrays for the wanted points of a stream, for the slices to fill."""
        if points is None:
            return {}
        if self.spec.parallel and RESID_MID in points.wanted:
            raise KeyError(RESID_MID)
        points.found.update((each, np.empty_like(hidden)) for each in points.wanted)
        return points.found

    def _slices(self, num_rows: int) -> list[slice]:
        rows = slice_rows(self.spec.feed_forward.intermediate_size)
        return self.threads.slices(num_rows, rows)


def _angles(tables: RotaryTables[F32] | None, rows: slice | Ints) -> Angles:
    """Take some rows of the tables."""
    return None if tables is None else tables.rows(rows)


def _cut(found: Found, part: slice) -> Found:
    return {point: rows[part] for point, rows in found.items()}


def _keep(found: Found, point: str, rows: F32) -> None:
    """Copy rows of a point, if it is wanted: where they stand, others will."""
    if point in found:
        found[point][:] = rows
