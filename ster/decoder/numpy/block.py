"""A block in numpy, on the cpu: the reference, made to be read.

Read it beside ``mlx.block``: the same classes in the same order. What is different here
is how work is spread: rows are independent outside attention, so a block runs slice by
slice on a pool of threads, each slice through small products that stay in its core's
cache, with BLAS itself held to one thread. The stream and the products' results lie
column by column in memory: BLAS multiplies such rows faster, and what stands between
two products runs along tokens, a thousand in a row.

Products, the stream's arithmetic and attention are f32 whatever the precision; an f16
run rounds the weights, the residual stream, and keys and values to f16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ster.architecture import spec
from ster.decoder.contract import Cache, LayerInputs
from ster.decoder.numpy.scratch import Scratch
from ster.decoder.numpy.threads import Threads, quiet
from ster.stream.attention import Attention, AttentionBatch
from ster.stream.packing import Ints
from ster.stream.rotary import RotaryTables

F32 = NDArray[np.float32]
# The stream: f32, or f16 in an f16 run.
Hidden = NDArray[np.float32] | NDArray[np.float16]
# Cosines and sines of some rows, or None where nothing turns.
Angles = tuple[F32, F32] | None

# Values of a slice's widest intermediate: enough rows that a product pays for packing
# its weights, and few enough that what stands between products stays near the core.
SLICE_VALUES = 1 << 21
MIN_SLICE_ROWS, MAX_SLICE_ROWS = 256, 1280
# Scores of one attention batch, over all heads, and values that are activated at once:
# they stay in a core's cache.
MAX_SCORES = 1 << 18
# Values of the keys that one attention batch gathers, and so of its values.
MAX_GATHERED = 1 << 20
ACTIVATED_VALUES = 1 << 18
# Scores below this size are exponentiated as they are: exp(±40), and sums of it, are
# far from both ends of f32. The largest score of a row is dear to find.
SAFE_SCORE = 40.0


def slice_rows(intermediate_size: int) -> int:
    """Choose how many rows go through a block together on one core."""
    rows = SLICE_VALUES // intermediate_size
    return min(MAX_SLICE_ROWS, max(MIN_SLICE_ROWS, rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """y = x Wᵀ + b, with W as the checkpoint stores it, (outputs, inputs)."""

    weight: F32
    bias: F32 | None

    def __call__(self, x: F32, out: F32 | None = None) -> F32:
        """Apply to rows, (num_rows, inputs) -> (num_rows, outputs)."""
        y: F32 = np.matmul(x, self.weight.T, out=out)
        if self.bias is not None:
            y += self.bias
        return y

    def outputs(self, start: int, stop: int) -> Linear:
        """Return the part that makes some of the outputs; nothing is copied."""
        bias = None if self.bias is None else self.bias[start:stop]
        return Linear(weight=self.weight[start:stop], bias=bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class RMSNorm:
    """x / sqrt(mean(x²) + eps) · w over the last axis."""

    weight: F32
    eps: float

    def __call__(self, x: F32, out: F32 | None = None) -> F32:
        """Normalise rows of any leading shape."""
        mean_square: F32 = np.einsum("...i,...i->...", x, x)[..., None] / x.shape[-1]
        normed: F32 = np.multiply(x, 1 / np.sqrt(mean_square + self.eps), out=out)
        normed *= self.weight
        return normed


def rotate(x: F32, angles: Angles) -> F32:
    """Rotate halves of each head by the tables, (num_rows, num_heads, head_dim)."""
    if angles is None:
        return x
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    cos, sin = angles[0][:, None], angles[1][:, None]
    return np.concatenate(
        [first * cos - second * sin, second * cos + first * sin], axis=-1
    )


def angles_of(tables: RotaryTables[F32] | None, rows: slice | Ints) -> Angles:
    """Take some rows of the tables."""
    return None if tables is None else (tables.cos[rows], tables.sin[rows])


def silu(x: F32) -> F32:
    """Multiply each value by its sigmoid, where it stands."""
    divisor = np.negative(x)
    np.exp(divisor, out=divisor)
    divisor += 1
    return np.divide(x, divisor, out=x)


def attend(
    batch: AttentionBatch[Ints],
    q: F32,
    k: Hidden,
    v: Hidden,
    *,
    scale: float,
    window: int | None,
) -> F32:
    """Attend within one batch.

    Args:
        batch: Who sees whom.
        q: Queries, (num_queries, num_heads, head_dim).
        k: Keys of the whole stream, (num_tokens, num_key_value_heads, head_dim).
        v: Values, likewise.
        scale: Multiplies the scores.
        window: How many tokens a query sees.

    Returns:
        (num_groups · num_queries, num_heads · head_dim), in the batch's order.
    """
    groups, num_queries = batch.queries.shape
    num_keys = batch.key_positions.shape[1]
    num_heads, head_dim = q.shape[1:]
    kv_heads = k.shape[1]
    shared = num_heads // kv_heads  # query heads that share one key head
    # Queries that share a key head are rows of one product.
    queries = q.take(batch.queries, axis=0)
    queries *= scale
    queries = queries.reshape(groups, num_queries, kv_heads, shared, head_dim)
    queries = queries.transpose(0, 2, 1, 3, 4).reshape(groups, kv_heads, -1, head_dim)
    keys = _gather(k, batch.keys).transpose(0, 2, 3, 1)
    values = _gather(v, batch.keys).transpose(0, 2, 1, 3)
    scores = (queries @ keys).reshape(groups, kv_heads, num_queries, shared, num_keys)
    scores = exponentials(scores, visible(batch, window)[:, None, :, None, :])
    total = np.einsum("...k->...", scores)[..., None]
    out = scores.reshape(groups, kv_heads, -1, num_keys) @ values
    out = out.reshape(groups, kv_heads, num_queries, shared, head_dim)
    out /= total
    flat: F32 = out.transpose(0, 2, 1, 3, 4).reshape(groups * num_queries, -1)
    return flat


def _gather(rows: Hidden, indices: Ints | None) -> F32:
    """Take each group's keys or values as f32; None is all of them, for one group."""
    taken = rows[None] if indices is None else rows.take(indices, axis=0)
    return taken.astype(np.float32, copy=False)


def exponentials(scores: F32, seen: NDArray[np.bool_]) -> F32:
    """Turn each row of scores into the numerators of its softmax, where it stands."""
    moderate = scores.min() > -SAFE_SCORE and scores.max() < SAFE_SCORE
    np.copyto(scores, -np.inf, where=~seen)
    if not moderate:
        scores -= scores.max(axis=-1, keepdims=True)
    return np.exp(scores, out=scores)


def visible(batch: AttentionBatch[Ints], window: int | None) -> NDArray[np.bool_]:
    """Tell which keys each query sees, (num_groups, num_queries, num_keys)."""
    queries, keys = batch.query_positions[:, :, None], batch.key_positions[:, None, :]
    seen = keys <= queries
    return seen if window is None else seen & (keys > queries - window)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfAttention:
    """Grouped-query attention; q, k and v come from one product."""

    spec: spec.Attention
    qkv_proj: Linear
    o_proj: Linear
    q_norm: RMSNorm | None
    k_norm: RMSNorm | None

    def project(self, x: F32, angles: Angles, scratch: Scratch) -> tuple[F32, F32, F32]:
        """Make rotated queries and keys, and values, of some rows."""
        out = scratch.columns("projected", len(x), len(self.qkv_proj.weight))
        q, kv = np.split(self.qkv_proj(x, out), [self.spec.query_size], axis=-1)
        return self._queries(q, angles), *self._keys_values(kv, angles)

    def keys_values(self, x: F32, angles: Angles, scratch: Scratch) -> tuple[F32, F32]:
        """Make rotated keys, and values, of some rows."""
        start, size = self.spec.query_size, 2 * self.spec.key_value_size
        out = scratch.columns("projected", len(x), size)
        kv = self.qkv_proj.outputs(start, start + size)(x, out)
        return self._keys_values(kv, angles)

    def queries(self, x: F32, angles: Angles) -> F32:
        """Make rotated queries of some rows."""
        q = self.qkv_proj.outputs(0, self.spec.query_size)(x)
        return self._queries(q, angles)

    def _queries(self, q: F32, angles: Angles) -> F32:
        return rotate(self._heads(q, self.q_norm), angles)

    def _keys_values(self, kv: F32, angles: Angles) -> tuple[F32, F32]:
        k, v = np.split(kv, 2, axis=1)
        return rotate(self._heads(k, self.k_norm), angles), self._heads(v, None)

    def _heads(self, rows: F32, norm: RMSNorm | None) -> F32:
        """Split rows into heads, normalised before or after: as wide as the norm is."""
        if norm is not None and len(norm.weight) == rows.shape[-1]:
            rows, norm = norm(rows), None
        heads = rows.reshape(len(rows), -1, self.spec.head_dim)
        return heads if norm is None else norm(heads)


@dataclass(frozen=True, slots=True, kw_only=True)
class MLP:
    """down(silu(gate(x)) · up(x)); gate and up come from one product."""

    gate_up_proj: Linear
    down_proj: Linear

    def __call__(self, x: F32, scratch: Scratch) -> F32:
        """Apply to rows, (num_rows, hidden_size), where they stand."""
        out = scratch.columns("projected", len(x), len(self.gate_up_proj.weight))
        gate, up = np.split(self.gate_up_proj(x, out), 2, axis=1)
        step = max(1, ACTIVATED_VALUES // len(x))
        for at in range(0, gate.shape[1], step):
            part = slice(at, at + step)
            activated = silu(gate[:, part])
            activated *= up[:, part]
        return self.down_proj(gate, x)


class NumpyCache:
    """One layer's keys and values in arrays that grow by doubling, up to a bound.

    Args:
        width: Number of key heads and width of a head.
        dtype: The stream's width.
        max_tokens: No more will be held.
    """

    def __init__(
        self, width: tuple[int, int], dtype: np.dtype[Any], max_tokens: int
    ) -> None:
        self._keys: Hidden = np.empty((0, *width), dtype)
        self._values = np.empty_like(self._keys)
        self._length = 0
        self._max_tokens = max_tokens

    def append(self, keys: Hidden, values: Hidden) -> tuple[Hidden, Hidden]:
        """Add tokens; see ``contract.Cache``."""
        start, stop = self._length, self._length + len(keys)
        if stop > len(self._keys):
            size = max(min(2 * stop, self._max_tokens), stop)
            self._keys = self._grown(self._keys, size)
            self._values = self._grown(self._values, size)
        self._keys[start:stop], self._values[start:stop] = keys, values
        self._length = stop
        return self._keys[:stop], self._values[:stop]

    def _grown(self, held: Hidden, size: int) -> Hidden:
        grown = np.empty((size, *held.shape[1:]), held.dtype)
        grown[: self._length] = held[: self._length]
        return grown


@dataclass(frozen=True, slots=True, kw_only=True)
class NumpyBlock:
    """One block with its weights, run slice by slice on a pool of threads."""

    spec: spec.LayerSpec
    attention_norm: RMSNorm | None
    self_attn: SelfAttention
    attention_out_norm: RMSNorm | None
    feed_forward_norm: RMSNorm | None
    mlp: MLP
    feed_forward_out_norm: RMSNorm | None
    threads: Threads
    scratch: Scratch

    def __call__(
        self, hidden: Hidden, inputs: LayerInputs[Any], cache: Cache[Any] | None
    ) -> Hidden:
        """Run the block; see ``contract.Block``."""
        with quiet():
            q, k, v = self._project(hidden, inputs)
            if cache is not None:
                k, v = cache.append(k, v)
            context = self._attend(inputs.attention, q, k, v)
            rows = inputs.attention.rows
            return self._finish(hidden if rows is None else hidden[rows], context)

    def _project(
        self, hidden: Hidden, inputs: LayerInputs[Any]
    ) -> tuple[F32, Hidden, Hidden]:
        """Make queries, keys and values; keys and values at the stream's width."""
        attn, scratch, width = self.self_attn, self.scratch, hidden.dtype
        rows, rotary, sizes = inputs.attention.rows, inputs.rotary, attn.spec
        num_queries = len(hidden) if rows is None else len(rows)
        kv_shape = len(hidden), sizes.num_key_value_heads, sizes.head_dim
        k, v = (scratch(name, *kv_shape, dtype=width) for name in "kv")
        q = scratch("q", num_queries, sizes.num_heads, sizes.head_dim)

        def project(part: slice) -> None:
            x, angles = self._normed(hidden[part]), angles_of(rotary, part)
            if rows is None:
                q[part], k[part], v[part] = attn.project(x, angles, scratch)
            else:
                k[part], v[part] = attn.keys_values(x, angles, scratch)

        self.threads.map(project, self._slices(len(hidden)))
        if rows is not None:
            x, angles = self._normed(hidden[rows]), angles_of(rotary, rows)
            q[:] = attn.queries(x, angles)
        return q, k, v

    def _normed(self, hidden: Hidden) -> F32:
        wide = hidden.astype(np.float32, copy=False)
        if self.attention_norm is None:
            return wide
        return self.attention_norm(wide, self.scratch.columns("x", *hidden.shape))

    def _attend(self, attention: Attention[Ints], q: F32, k: Hidden, v: Hidden) -> F32:
        """Attend batch by batch; each query's context takes its place."""
        context, scale = q.reshape(len(q), -1), self.self_attn.spec.scale

        def one(batch: AttentionBatch[Ints]) -> None:
            # No other batch reads these queries. Padding repeats one, so its result is
            # written twice, and equal.
            made = attend(batch, q, k, v, scale=scale, window=attention.window)
            context[batch.queries.ravel()] = made

        self.threads.map(one, attention.batches)
        return context

    def _finish(self, hidden: Hidden, context: F32) -> Hidden:
        """Add attention and feed-forward part, rounding each sum to the stream."""
        scratch = self.scratch

        def finish(part: slice) -> None:
            shape = hidden[part].shape
            sums = self.self_attn.o_proj(context[part], scratch.columns("sums", *shape))
            self._weigh(sums, self.attention_out_norm)
            sums += hidden[part]
            if hidden.dtype != np.float32:
                sums[:] = sums.astype(hidden.dtype)
            x = scratch.columns("x", *shape)
            if self.feed_forward_norm is None:
                x[:] = sums
            else:
                self.feed_forward_norm(sums, x)
            added = self.mlp(x, scratch)
            self._weigh(added, self.feed_forward_out_norm)
            np.add(sums, added, out=hidden[part])

        self.threads.map(finish, self._slices(len(hidden)))
        return hidden

    def _weigh(self, added: F32, norm: RMSNorm | None) -> None:
        """Normalise and scale, where they stand, rows that are to join the stream."""
        if norm is not None:
            norm(added, added)
        if self.spec.residual_multiplier != 1:
            added *= self.spec.residual_multiplier

    def _slices(self, num_rows: int) -> list[slice]:
        rows = slice_rows(self.spec.feed_forward.intermediate_size)
        return self.threads.slices(num_rows, rows)
