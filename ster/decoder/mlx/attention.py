"""Attention in MLX: rotation, softmax batch by batch, and the keys that are kept."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from ster.architecture import parts
from ster.decoder.mlx.fused import fused
from ster.decoder.mlx.parts import AnyLinear, AnyNorm
from ster.stream.attention import AttentionBatch
from ster.stream.rotary import RotaryTables

# Of some rows: cosines, (num_rows, 1, 1, half), and sines, (num_rows, 1, 2, half), of
# which those of first halves are negative; None where nothing turns.
Angles = RotaryTables[mx.array] | None

# Scores of one attention batch, over all heads: what an unfused kernel materialises.
MAX_SCORES = 1 << 25
# Values of the keys that one attention batch gathers, and so of its values.
MAX_GATHERED = 1 << 23


def rotate(x: mx.array, angles: Angles) -> mx.array:
    """Rotate halves of each head by the tables, (num_rows, num_heads, head_dim) f32."""
    if angles is None:
        return x.astype(mx.float32)
    size = 2 * angles.cos.shape[-1]
    is_whole = x.shape[-1] == size
    halves = (x if is_whole else x[..., :size]).reshape(*x.shape[:-1], 2, -1)
    turned = _turned(halves, halves[..., ::-1, :], angles.cos, angles.sin)
    turned = turned.reshape(*x.shape[:-1], size)
    return turned if is_whole else mx.concatenate([turned, x[..., size:]], axis=-1)


@fused
def _turned(x: mx.array, other: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
    x, other = x.astype(mx.float32), other.astype(mx.float32)
    return x * cos + other * sin


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
        out = attend_capped(scaled, keys, values, mask, attention.softcap)
    else:
        out = mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=attention.scale, mask=mask, sinks=sinks
        )
    return out.swapaxes(1, 2).reshape(groups * num_queries, -1)


def attend_capped(
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
        rows, sizes = self.qkv_proj(x), self.spec
        if self.q_norm is not None or self.k_norm is not None:
            q, kv = mx.split(rows, [sizes.query_size], axis=-1)
            return self._queries(q, angles), *self._keys_values(kv, angles)
        turned, v = mx.split(rows, [sizes.query_size + sizes.key_value_size], axis=-1)
        turned = rotate(self._heads(turned, None), angles)
        q, k = mx.split(turned, [sizes.num_heads], axis=1)
        return self._scaled(q, angles), k, self._heads(v, None)

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
        return self._scaled(rotate(self._heads(q, self.q_norm), angles), angles)

    def _scaled(self, q: mx.array, angles: Angles) -> mx.array:
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
