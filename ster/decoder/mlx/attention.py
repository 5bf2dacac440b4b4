"""Attention in MLX: rotation, softmax batch by batch, and the keys that are kept."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from ster.architecture import parts
from ster.decoder.mlx.parts import AnyLinear, AnyNorm
from ster.stream.attention import AttentionBatch
from ster.stream.rotary import RotaryTables
from ster.stream.texts import Entering, Leaving, NextTokens

# Of some rows; None where nothing turns.
Angles = RotaryTables[mx.array] | None

# Scores of one attention batch, over all heads: what an unfused kernel materialises.
MAX_SCORES = 1 << 25
# Values of the keys that one attention batch gathers, and so of its values.
MAX_GATHERED = 1 << 23


def rotate(x: mx.array, angles: Angles) -> mx.array:
    """Rotate halves of each head by the tables, (num_rows, num_heads, head_dim) f32."""
    if angles is None:
        return x
    half = angles.cos.shape[-1]
    first, second = x[..., :half], x[..., half : 2 * half]
    cos, sin = angles.cos[:, None], angles.sin[:, None]
    turned = [first * cos - second * sin, second * cos + first * sin]
    if x.shape[-1] > 2 * half:
        turned.append(x[..., 2 * half :])
    return mx.concatenate(turned, axis=-1)


def attend(
    batch: AttentionBatch[mx.array],
    q: mx.array,
    k: mx.array,
    v: mx.array,
    attention: parts.Attention,
    sinks: mx.array | None = None,
) -> mx.array:
    """Attend within one batch.

    Args:
        batch: Who sees whom.
        q: Queries, (num_queries, num_heads, head_dim) f32.
        k: Keys of the whole stream, (num_tokens, num_key_value_heads, head_dim).
        v: Values, likewise.
        attention: How scores are made, and how many tokens a query sees.
        sinks: One score a head that takes its share and gives nothing, (num_heads,).

    Returns:
        (num_groups · num_queries, num_heads · head_dim) f32, in the batch's order.
    """
    groups, num_queries = batch.queries.shape
    window = attention.window
    queries = q[batch.queries].swapaxes(1, 2)
    keys = _gather(k, batch.keys).swapaxes(1, 2)
    values = _gather(v, batch.keys).swapaxes(1, 2)
    mask = visible(batch, window)[:, None]
    if attention.softcap is not None:
        scaled = queries * attention.scale
        out = _attend_capped(scaled, keys, values, mask, attention.softcap)
    else:
        out = mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=attention.scale, mask=mask, sinks=sinks
        )
    return out.swapaxes(1, 2).reshape(groups * num_queries, -1)


def _attend_capped(
    q: mx.array, k: mx.array, v: mx.array, mask: mx.array | None, softcap: float
) -> mx.array:
    """Attend with capped scores, which no fused kernel has.

    All are (num_groups, heads of their kind, their tokens, head_dim) f32.
    """
    groups, heads, num_queries, head_dim = q.shape
    kv_heads = k.shape[1]
    q = q.reshape(groups, kv_heads, heads // kv_heads, num_queries, head_dim)
    scores = softcap * mx.tanh((q @ k[:, :, None].swapaxes(-1, -2)) / softcap)
    if mask is not None:
        scores = mx.where(mask[:, :, None], scores, -mx.inf)
    out = mx.softmax(scores, axis=-1) @ v[:, :, None]
    return out.reshape(groups, heads, num_queries, head_dim)


def _gather(rows: mx.array, indices: mx.array) -> mx.array:
    """Take each group's keys or values as f32."""
    return rows[indices].astype(mx.float32)


def visible(batch: AttentionBatch[mx.array], window: int | None) -> mx.array:
    """Tell which keys each query sees, (num_groups, num_queries, num_keys)."""
    queries, keys = batch.query_positions[:, :, None], batch.key_positions[:, None, :]
    seen = keys <= queries
    return seen if window is None else seen & (keys > queries - window)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfAttention:
    """Grouped-query attention; q, k and v come from one product."""

    spec: parts.Attention
    qkv_proj: AnyLinear
    o_proj: AnyLinear
    q_norm: AnyNorm | None
    k_norm: AnyNorm | None
    sinks: mx.array | None

    def project(
        self, x: mx.array, angles: Angles
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Make rotated queries and keys, and values, of some rows."""
        q, kv = mx.split(self.qkv_proj(x), [self.spec.query_size], axis=-1)
        return self._queries(q, angles), *self._keys_values(kv, angles)

    def keys_values(self, x: mx.array, angles: Angles) -> tuple[mx.array, mx.array]:
        """Make rotated keys, and values, of some rows."""
        start, size = self.spec.query_size, 2 * self.spec.key_value_size
        kv = self.qkv_proj.outputs(start, start + size)(x)
        return self._keys_values(kv, angles)

    def queries(self, x: mx.array, angles: Angles) -> mx.array:
        """Make rotated queries of some rows."""
        q = self.qkv_proj.outputs(0, self.spec.query_size)(x)
        return self._queries(q, angles)

    def _queries(self, q: mx.array, angles: Angles) -> mx.array:
        q = rotate(self._heads(q, self.q_norm), angles)
        scale = None if angles is None else angles.query_scale
        return q if scale is None else q * scale

    def _keys_values(self, kv: mx.array, angles: Angles) -> tuple[mx.array, mx.array]:
        k, v = mx.split(kv, 2, axis=-1)
        return rotate(self._heads(k, self.k_norm), angles), self._heads(v, None)

    def _heads(self, rows: mx.array, norm: AnyNorm | None) -> mx.array:
        """Split rows into heads, normalised before or after: as wide as the norm is."""
        if norm is not None and len(norm.weight) == rows.shape[-1]:
            rows, norm = norm(rows), None
        heads = rows.reshape(len(rows), -1, self.spec.head_dim)
        return heads if norm is None else norm(heads)


def attend_following(
    following: NextTokens[mx.array],
    q: mx.array,
    cache: MLXCache,
    attention: parts.Attention,
    sinks: mx.array | None = None,
) -> mx.array:
    """Attend from each text's new token to what it sees.

    Args:
        following: Who sees what.
        q: Queries, (num_texts, num_heads, head_dim) f32.
        cache: Keys and values of all texts.
        attention: How scores are made.
        sinks: As for ``attend``.

    Returns:
        (num_texts, num_heads · head_dim) f32.
    """
    keys, values = cache.own(len(q), following.num_own_keys)
    queries, seen = q[:, :, None], following.seen
    mask = None if seen is None else seen[:, None, None]
    if following.stems:
        out = _attend_stems(following, queries, cache, attention, sinks)
    elif attention.softcap is not None:
        scaled = queries * attention.scale
        out = _attend_capped(scaled, keys, values, mask, attention.softcap)
    else:
        out = mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=attention.scale, mask=mask, sinks=sinks
        )
    return out.reshape(len(q), -1)


def _attend_stems(
    following: NextTokens[mx.array],
    q: mx.array,
    cache: MLXCache,
    attention: parts.Attention,
    sinks: mx.array | None,
) -> mx.array:
    """Attend to stems and own tokens, (num_texts, num_heads, 1, head_dim) f32."""
    own_keys, own_values = cache.own(len(q), following.num_own_keys)
    num_texts, num_heads, _, head_dim = q.shape
    kv_heads, split = own_keys.shape[1], following.num_stem_keys
    shared = num_heads // kv_heads
    queries = (q * attention.scale).reshape(num_texts, kv_heads, shared, head_dim)
    scores = mx.zeros((num_texts, kv_heads, shared, split))
    for stem in following.stems:
        keys, _ = cache.stem(stem.number)
        scores[stem.texts, :, :, stem.start : stem.stop] = _with_stem(
            queries[stem.texts], keys.swapaxes(-1, -2)
        )
    scores = mx.concatenate([scores, queries @ own_keys.swapaxes(-1, -2)], axis=-1)
    if attention.softcap is not None:
        scores = attention.softcap * mx.tanh(scores / attention.softcap)
    if following.seen is not None:
        scores = mx.where(following.seen[:, None, None], scores, -mx.inf)
    if sinks is not None:
        sink = mx.broadcast_to(
            sinks.reshape(1, kv_heads, shared, 1), (*scores.shape[:3], 1)
        )
        scores = mx.concatenate([scores, sink], axis=-1)
    shares = mx.softmax(scores, axis=-1)
    out = shares[..., split : split + following.num_own_keys] @ own_values
    for stem in following.stems:
        _, values = cache.stem(stem.number)
        added = _with_stem(shares[stem.texts, :, :, stem.start : stem.stop], values)
        out = out.at[stem.texts].add(added)
    return out.reshape(num_texts, num_heads, 1, head_dim)


def _with_stem(rows: mx.array, stem: mx.array) -> mx.array:
    """Multiply rows of several texts with what they share, in one product a head.

    Args:
        rows: (num_texts, num_key_value_heads, heads of each, width).
        stem: (num_key_value_heads, width, other width).

    Returns:
        (num_texts, num_key_value_heads, heads of each, other width).
    """
    num_texts, kv_heads, shared, width = rows.shape
    flat = rows.swapaxes(0, 1).reshape(kv_heads, num_texts * shared, width)
    return (flat @ stem).reshape(kv_heads, num_texts, shared, -1).swapaxes(0, 1)


class MLXCache:
    """One layer's keys and values; see ``contract.Cache``.

    Own tokens lie text by text and head by head, (num_texts, num_key_value_heads,
    num_tokens, head_dim), in arrays that grow by whole steps, up to a bound.

    Args:
        width: Number of key heads and width of a head.
        dtype: Of keys and values.
        max_tokens: No text will have more own tokens.
    """

    STEP = 256

    def __init__(
        self, width: tuple[int, int], dtype: mx.Dtype, max_tokens: int
    ) -> None:
        kv_heads, head_dim = width
        self._keys = mx.zeros((0, kv_heads, 0, head_dim), dtype)
        self._values = mx.zeros((0, kv_heads, 0, head_dim), dtype)
        self._stems: dict[int, tuple[mx.array, mx.array]] = {}
        self._max_tokens = max_tokens

    def own(self, num_texts: int, num_tokens: int) -> tuple[mx.array, mx.array]:
        """Return own keys and values of the first texts as f32, padding included."""
        held = self._keys, self._values
        keys, values = (each[:num_texts, :, :num_tokens] for each in held)
        return keys.astype(mx.float32), values.astype(mx.float32)

    def stem(self, number: int) -> tuple[mx.array, mx.array]:
        """Return a stem's keys and values as f32, (num_key_value_heads, ...)."""
        keys, values = self._stems[number]
        return keys.astype(mx.float32), values.astype(mx.float32)

    def enter(
        self, keys: mx.array, values: mx.array, entering: Entering[mx.array]
    ) -> None:
        """Take those of a stream; see ``contract.Cache``."""
        for stem in entering.stems:
            both = keys[stem.rows], values[stem.rows]
            self._stems[stem.number] = both[0].swapaxes(0, 1), both[1].swapaxes(0, 1)
        num_texts, num_tokens = entering.rows.shape
        first, stop = entering.first, entering.first + num_texts
        self._make_room(stop, num_tokens)
        if num_tokens:
            # MLX writes in place what nothing else holds.
            both = keys[entering.rows], values[entering.rows]
            self._keys[first:stop, :, :num_tokens] = both[0].swapaxes(1, 2)
            self._values[first:stop, :, :num_tokens] = both[1].swapaxes(1, 2)

    def append(
        self, keys: mx.array, values: mx.array, following: NextTokens[mx.array]
    ) -> None:
        """Take those of new tokens; see ``contract.Cache``."""
        num_texts, stop = len(keys), following.num_own_keys
        self._make_room(num_texts, stop)
        if num_texts == 1:  # a slice is written faster than rows that are looked up
            self._keys[:1, :, stop - 1 : stop] = keys[:, :, None]
            self._values[:1, :, stop - 1 : stop] = values[:, :, None]
            return
        texts, last = mx.arange(num_texts), following.lengths - 1
        self._keys[texts, :, last] = keys
        self._values[texts, :, last] = values

    def leave(self, leaving: Leaving) -> None:
        """Let go of those of texts that leave; see ``contract.Cache``."""
        for source, target in leaving.moves:
            self._keys[target] = self._keys[source]
            self._values[target] = self._values[source]
        for stem in leaving.stems:
            del self._stems[stem]

    def _make_room(self, num_texts: int, num_tokens: int) -> None:
        texts, _, tokens, _ = self._keys.shape
        if num_texts <= texts and num_tokens <= tokens:
            return
        if num_tokens > tokens:
            # Doubling as well, so that a long text is not copied every 256 tokens.
            wished = max(-(-num_tokens // self.STEP) * self.STEP, 2 * tokens)
            tokens = max(min(wished, self._max_tokens), num_tokens)
        shape = max(texts, num_texts), tokens
        self._keys = _grown(self._keys, shape)
        self._values = _grown(self._values, shape)


def _grown(held: mx.array, shape: tuple[int, int]) -> mx.array:
    texts, kv_heads, tokens, head_dim = held.shape
    grown = mx.zeros((shape[0], kv_heads, shape[1], head_dim), held.dtype)
    if texts and tokens:
        grown[:texts, :, :tokens] = held
    return grown
