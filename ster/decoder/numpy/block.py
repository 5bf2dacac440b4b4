"""The blocks of the Llama family in numpy, on the cpu: the reference, made to be read.

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

from ster.architecture.config import DecoderConfig
from ster.decoder.contract import Cache, Wave
from ster.decoder.numpy.scratch import Scratch
from ster.decoder.numpy.threads import Threads, quiet
from ster.stream.attention import Attention, AttentionBatch
from ster.stream.packing import Ints

F32 = NDArray[np.float32]
# The stream: f32, or f16 in an f16 run.
Hidden = NDArray[np.float32] | NDArray[np.float16]

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


def slice_rows(config: DecoderConfig) -> int:
    """Choose how many rows go through a block together on one core."""
    rows = SLICE_VALUES // config.intermediate_size
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


def rotate(x: F32, cos: F32, sin: F32) -> F32:
    """Rotate halves of each head by the tables, (num_rows, num_heads, head_dim)."""
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate(
        [first * cos - second * sin, second * cos + first * sin], axis=-1
    )


def silu(x: F32) -> F32:
    """Multiply each value by its sigmoid, where it stands."""
    divisor = np.negative(x)
    np.exp(divisor, out=divisor)
    divisor += 1
    return np.divide(x, divisor, out=x)


def attend(
    batch: AttentionBatch[Ints], q: F32, k: Hidden, v: Hidden, window: int | None
) -> F32:
    """Attend within one batch.

    Args:
        batch: Who sees whom.
        q: Queries, (num_queries, num_heads, head_dim).
        k: Keys of the whole stream, (num_tokens, num_key_value_heads, head_dim).
        v: Values, likewise.
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
    queries *= head_dim**-0.5
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

    config: DecoderConfig
    qkv_proj: Linear
    o_proj: Linear
    q_norm: RMSNorm | None
    k_norm: RMSNorm | None

    def project(
        self, x: F32, cos: F32, sin: F32, scratch: Scratch
    ) -> tuple[F32, F32, F32]:
        """Make rotated queries and keys, and values, of some rows."""
        out = scratch.columns("projected", len(x), len(self.qkv_proj.weight))
        q, kv = np.split(self.qkv_proj(x, out), [self.config.query_size], axis=-1)
        return self._queries(q, cos, sin), *self._keys_values(kv, cos, sin)

    def keys_values(
        self, x: F32, cos: F32, sin: F32, scratch: Scratch
    ) -> tuple[F32, F32]:
        """Make rotated keys, and values, of some rows."""
        start, size = self.config.query_size, 2 * self.config.key_value_size
        out = scratch.columns("projected", len(x), size)
        kv = self.qkv_proj.outputs(start, start + size)(x, out)
        return self._keys_values(kv, cos, sin)

    def queries(self, x: F32, cos: F32, sin: F32) -> F32:
        """Make rotated queries of some rows."""
        q = self.qkv_proj.outputs(0, self.config.query_size)(x)
        return self._queries(q, cos, sin)

    def _queries(self, q: F32, cos: F32, sin: F32) -> F32:
        q = q.reshape(len(q), -1, self.config.head_dim)
        if self.q_norm is not None:
            q = self.q_norm(q)
        return rotate(q, cos, sin)

    def _keys_values(self, kv: F32, cos: F32, sin: F32) -> tuple[F32, F32]:
        kv = kv.reshape(len(kv), -1, self.config.head_dim)
        k, v = np.split(kv, 2, axis=1)
        if self.k_norm is not None:
            k = self.k_norm(k)
        return rotate(k, cos, sin), v


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
    """One layer's keys and values in arrays that grow by doubling.

    Args:
        width: Number of key heads and width of a head.
        dtype: The stream's width.
    """

    def __init__(self, width: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self._keys: Hidden = np.empty((0, *width), dtype)
        self._values = np.empty_like(self._keys)
        self._length = 0

    def append(self, keys: Hidden, values: Hidden) -> tuple[Hidden, Hidden]:
        """Add tokens; see ``contract.Cache``."""
        start, stop = self._length, self._length + len(keys)
        if stop > len(self._keys):
            self._keys = self._grown(self._keys, 2 * stop)
            self._values = self._grown(self._values, 2 * stop)
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

    config: DecoderConfig
    input_layernorm: RMSNorm
    self_attn: SelfAttention
    post_attention_layernorm: RMSNorm
    mlp: MLP
    threads: Threads
    scratch: Scratch

    def __call__(
        self, hidden: Hidden, wave: Wave[Any], cache: Cache[Any] | None = None
    ) -> Hidden:
        """Run the block; see ``contract.Block``."""
        with quiet():
            return self._run(hidden, wave, cache)

    def _run(self, hidden: Hidden, wave: Wave[Any], cache: Cache[Any] | None) -> Hidden:
        q, k, v = self._project(hidden, wave)
        if cache is not None:
            k, v = cache.append(k, v)
        context = self._attend(wave.attention, q, k, v)
        rows = wave.attention.rows
        return self._finish(hidden if rows is None else hidden[rows], context)

    def _project(self, hidden: Hidden, wave: Wave[Any]) -> tuple[F32, Hidden, Hidden]:
        """Make queries, keys and values; keys and values at the stream's width."""
        heads, kv_heads, width = (
            self.config.num_attention_heads,
            self.config.num_key_value_heads,
            self.config.head_dim,
        )
        rows, attn, scratch = wave.attention.rows, self.self_attn, self.scratch
        k = scratch("k", len(hidden), kv_heads, width, dtype=hidden.dtype)
        v = scratch("v", *k.shape, dtype=hidden.dtype)
        q = scratch("q", len(hidden) if rows is None else len(rows), heads, width)

        def project(part: slice) -> None:
            x, cos, sin = self._normed(hidden[part]), wave.cos[part], wave.sin[part]
            if rows is None:
                q[part], k[part], v[part] = attn.project(x, cos, sin, scratch)
            else:
                k[part], v[part] = attn.keys_values(x, cos, sin, scratch)

        self.threads.map(project, self._slices(len(hidden)))
        if rows is not None:
            x, cos, sin = self._normed(hidden[rows]), wave.cos[rows], wave.sin[rows]
            q[:] = attn.queries(x, cos, sin)
        return q, k, v

    def _normed(self, hidden: Hidden) -> F32:
        x = self.scratch.columns("x", *hidden.shape)
        return self.input_layernorm(hidden.astype(np.float32, copy=False), x)

    def _attend(self, attention: Attention[Ints], q: F32, k: Hidden, v: Hidden) -> F32:
        """Attend batch by batch; each query's context takes its place."""
        context = q.reshape(len(q), -1)

        def one(batch: AttentionBatch[Ints]) -> None:
            # No other batch reads these queries. Padding repeats one, so its result is
            # written twice, and equal.
            context[batch.queries.ravel()] = attend(batch, q, k, v, attention.window)

        self.threads.map(one, attention.batches)
        return context

    def _finish(self, hidden: Hidden, context: F32) -> Hidden:
        """Add attention and feed-forward part, rounding each sum to the stream."""
        scratch = self.scratch

        def finish(part: slice) -> None:
            shape = hidden[part].shape
            sums = self.self_attn.o_proj(context[part], scratch.columns("sums", *shape))
            sums += hidden[part]
            if hidden.dtype != np.float32:
                sums[:] = sums.astype(hidden.dtype)
            x = self.post_attention_layernorm(sums, scratch.columns("x", *shape))
            np.add(sums, self.mlp(x, scratch), out=hidden[part])

        self.threads.map(finish, self._slices(len(hidden)))
        return hidden

    def _slices(self, num_rows: int) -> list[slice]:
        return self.threads.slices(num_rows, slice_rows(self.config))
