"""A block in MLX, on Apple's Metal and on CUDA.

Read it beside ``numpy.block``: the same classes in the same order. What is different
here is that evaluation is lazy: a block only writes down its work, and the loop's one
call of ``rows`` or ``materialize`` a block does it. Nothing inside a block comes back
to the host.

An f16 or bf16 run multiplies at that width: weights are held at it and never widened,
the inputs of a product are rounded to it, and so is what the kernel has summed in f32;
keys and values are held at it. All else is f32: the residual stream, norms, rotation,
scores, softmax and the weighted sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from ster.architecture import parts, spec
from ster.decoder.contract import Cache, LayerInputs, Points
from ster.decoder.mlx.attention import Angles, SelfAttention, attend
from ster.decoder.mlx.experts import Experts
from ster.decoder.mlx.parts import MLP, AnyNorm, plus
from ster.decoder.mlx.texts import MLXCache, attend_following
from ster.points import ATTN_OUT, MLP_OUT, RESID_MID, RESID_POST
from ster.stream.attention import Attention
from ster.stream.rotary import RotaryTables
from ster.stream.texts import NextTokens

# Multiplications of one product: a tenth of a second on the slowest of these GPUs, so
# that no command keeps the screen waiting or meets the watchdog.
MAX_PRODUCT = 1 << 36
# CUDA starts no more along two of a grid's axes, along which some of MLX's kernels have
# rows; narrow models would get more at once.
MAX_ROWS = (1 << 16) - 1
# What the rows that go through experts together have at once: each of its own copies.
MAX_EXPERT_VALUES = 1 << 25


@dataclass(frozen=True, slots=True, kw_only=True)
class MLXBlock:
    """One block with its weights, written down to be evaluated by the loop."""

    spec: spec.LayerSpec
    attention_norm: AnyNorm | None
    self_attn: SelfAttention
    attention_out_norm: AnyNorm | None
    feed_forward_norm: AnyNorm | None
    mlp: MLP | Experts
    feed_forward_out_norm: AnyNorm | None
    # Of keys and values.
    dtype: mx.Dtype
    device: mx.Device

    def __call__(
        self,
        hidden: mx.array,
        inputs: LayerInputs[mx.array],
        cache: Cache[mx.array] | None,
        points: Points[mx.array] | None = None,
    ) -> mx.array:
        """Run the block; see ``contract.Block``."""
        with mx.stream(self.device):
            attention = inputs.attention
            if isinstance(attention, NextTokens):
                context = self._follow(hidden, inputs.rotary, attention, cache)
                return self._finish(hidden, context, points)
            q, k, v = self._project(hidden, inputs.rotary, attention.rows)
            if isinstance(cache, MLXCache) and inputs.entering is not None:
                cache.enter(k, v, inputs.entering)
            context = self._attend(attention, q, k, v)
            rows = attention.rows
            resid = hidden if rows is None else hidden[rows]
            return self._finish(resid, context, points)

    def _follow(
        self,
        hidden: mx.array,
        tables: Angles,
        following: NextTokens[mx.array],
        cache: Cache[mx.array] | None,
    ) -> mx.array:
        """Attend from the new token of each text."""
        if not isinstance(cache, MLXCache):
            raise TypeError("new tokens attend to what a cache of this decoder holds")
        q, k, v = self._project(hidden, tables, None)
        cache.append(k, v, following)
        attn = self.self_attn
        return attend_following(following, q, cache, attn.spec, attn.sinks)

    def _project(
        self, hidden: mx.array, tables: Angles, rows: mx.array | None
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Make queries, keys and values; keys and values at the run's width.

        Args:
            hidden: The stream.
            tables: The angles of its rows.
            rows: Those that are queries; None is all.
        """
        attn = self.self_attn
        x = _normed(hidden, self.attention_norm)
        cuts = self._parts(len(hidden), attn.qkv_proj.num_outputs)
        if rows is None:
            made = [attn.project(_cut(x, p), _angles(tables, p)) for p in cuts]
            q, k, v = map(_joined, zip(*made, strict=True))
        else:
            kv = [attn.keys_values(_cut(x, p), _angles(tables, p)) for p in cuts]
            k, v = map(_joined, zip(*kv, strict=True))
            q = attn.queries(x[rows], _angles(tables, rows))
        return q, k.astype(self.dtype), v.astype(self.dtype)

    def _attend(
        self, attention: Attention[mx.array], q: mx.array, k: mx.array, v: mx.array
    ) -> mx.array:
        """Attend batch by batch; one row of context for each query, in order."""
        batches: list[mx.array] = []
        for batch in attention.batches:
            if batches:
                # One after the other, or the graph is walked in a breadth that holds
                # the scores and keys of many at once.
                q, k, v = mx.depends([q, k, v], [batches[-1]])
            attn = self.self_attn
            batches.append(attend(batch, q, k, v, attn.spec, attn.sinks))
        made = _joined(batches)
        return made if len(q) == len(made) == 1 else made[attention.order]

    def _finish(
        self, hidden: mx.array, context: mx.array, points: Points[mx.array] | None
    ) -> mx.array:
        """Add attention and feed-forward part."""
        parts_of_rows = self._parts(len(hidden), multiplied_outputs(self.spec))

        def finish(part: slice | None) -> dict[str, mx.array]:
            resid = _cut(hidden, part)
            made = self.self_attn.o_proj(_cut(context, part))
            attended = self._weighed(made, self.attention_out_norm)
            summed = plus(resid, attended)
            read = resid if self.spec.parallel else summed
            made = self.mlp(_normed(read, self.feed_forward_norm))
            fed = self._weighed(made, self.feed_forward_out_norm)
            rows = {ATTN_OUT: attended, MLP_OUT: fed, RESID_POST: plus(summed, fed)}
            return rows if self.spec.parallel else rows | {RESID_MID: summed}

        finished: list[dict[str, mx.array]] = []
        for part in parts_of_rows:
            if finished and isinstance(self.mlp, Experts):
                # As for attention: what experts gather is large.
                done = finished[-1][RESID_POST]
                hidden, context = mx.depends([hidden, context], [done])
            finished.append(finish(part))
        if points is not None:
            for point in points.wanted:
                rows = [each[point].astype(mx.float32) for each in finished]
                points.found[point] = _joined(rows)
        return _joined([each[RESID_POST] for each in finished])

    def _weighed(self, added: mx.array, norm: AnyNorm | None) -> mx.array:
        """Normalise and scale rows that are to join the stream."""
        added, multiplier = _normed(added, norm), self.spec.residual_multiplier
        return added if multiplier == 1 else added.astype(mx.float32) * multiplier

    def _parts(self, num_rows: int, outputs: int) -> list[slice | None]:
        """Cut rows so that no product of the hidden width is too long a command.

        None is all of them.
        """
        step = rows_at_once(self.spec, outputs)
        if num_rows <= step:
            return [None]
        return [slice(at, at + step) for at in range(0, num_rows, step)]


def multiplied_outputs(block: spec.LayerSpec) -> int:
    """Count the outputs of the feed-forward part's first product for a row."""
    made = block.feed_forward
    return made.widest * (made.num_chosen if isinstance(made, parts.Experts) else 1)


def rows_at_once(block: spec.LayerSpec, outputs: int) -> int:
    """Tell how many rows of a block go at once through a product to some outputs."""
    made, inputs = block.feed_forward, block.attention.q_proj.inputs
    most = min(MAX_PRODUCT // (inputs * outputs), MAX_ROWS)
    if isinstance(made, parts.Experts):
        of_experts = MAX_EXPERT_VALUES // expert_values(block)
        most = min(most, MAX_ROWS // made.num_chosen, of_experts)
    return max(1, most)


def expert_values(block: spec.LayerSpec) -> int:
    """Count the f32 values that a row has while its experts are at work."""
    made = block.feed_forward
    if not isinstance(made, parts.Experts):
        return 0
    return made.num_chosen * (3 * made.router.inputs + 2 * made.widest)


def _normed(x: mx.array, norm: AnyNorm | None) -> mx.array:
    return x if norm is None else norm(x.astype(mx.float32))


def _cut(x: mx.array, part: slice | None) -> mx.array:
    return x if part is None else x[part]


def _joined(parts_of_rows: Sequence[mx.array]) -> mx.array:
    if len(parts_of_rows) == 1:
        return parts_of_rows[0]
    return mx.concatenate([*parts_of_rows])


def _angles(
    tables: RotaryTables[mx.array] | None, rows: slice | mx.array | None
) -> Angles:
    """Take some rows of the tables; None is all."""
    return tables if tables is None or rows is None else tables.rows(rows)
