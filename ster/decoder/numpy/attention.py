"""Attention in numpy: rotation, softmax batch by batch, and the keys that are kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ster.architecture import parts
from ster.decoder.numpy.parts import F32, AnyNorm, Hidden, Linear
from ster.decoder.numpy.scratch import Scratch
from ster.stream.attention import AttentionBatch
from ster.stream.packing import Ints
from ster.stream.rotary import RotaryTables

# Of some rows; None where nothing turns.
Angles = RotaryTables[F32] | None

# Scores of one attention batch, over all heads: they stay in a core's cache.
MAX_SCORES = 1 << 18
# Values of the keys that one attention batch gathers, and so of its values.
MAX_GATHERED = 1 << 20
# Scores below this size are exponentiated as they are: exp(±40), and sums of it, are
# far from both ends of f32. The largest score of a row is dear to find.
SAFE_SCORE = 40.0


def rotate(x: F32, angles: Angles) -> F32:
    """Rotate halves of each head by the tables, (num_rows, num_heads, head_dim)."""
    if angles is None:
        return x
    half = angles.cos.shape[-1]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = angles.cos[:, None], angles.sin[:, None]
    return np.concatenate(
        [first * cos - second * sin, second * cos + first * sin, rest], axis=-1
    )


def attend(
    batch: AttentionBatch[Ints],
    q: F32,
    k: Hidden,
    v: Hidden,
    attention: parts.Attention,
    sinks: F32 | None = None,
) -> F32:
    """Attend within one batch.

    Args:
        batch: Who sees whom.
        q: Queries, (num_queries, num_heads, head_dim).
        k: Keys of the whole stream, (num_tokens, num_key_value_heads, head_dim).
        v: Values, likewise.
        attention: How scores are made, and how many tokens a query sees.
        sinks: One score a head that takes its share and gives nothing, (num_heads,).

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
    queries *= attention.scale
    queries = queries.reshape(groups, num_queries, kv_heads, shared, head_dim)
    queries = queries.transpose(0, 2, 1, 3, 4).reshape(groups, kv_heads, -1, head_dim)
    keys = _gather(k, batch.keys).transpose(0, 2, 3, 1)
    values = _gather(v, batch.keys).transpose(0, 2, 1, 3)
    scores = (queries @ keys).reshape(groups, kv_heads, num_queries, shared, num_keys)
    if attention.softcap is not None:
        cap(scores, attention.softcap)
    seen = visible(batch, attention.window)[:, None, :, None, :]
    scores, taken_off = exponentials(scores, seen)
    total = np.einsum("...k->...", scores)[..., None]
    if sinks is not None:
        total += np.exp(sinks.reshape(kv_heads, 1, shared, 1) - taken_off)
    out = scores.reshape(groups, kv_heads, -1, num_keys) @ values
    out = out.reshape(groups, kv_heads, num_queries, shared, head_dim)
    out /= total
    flat: F32 = out.transpose(0, 2, 1, 3, 4).reshape(groups * num_queries, -1)
    return flat


def _gather(rows: Hidden, indices: Ints) -> F32:
    """Take each group's keys or values as f32."""
    return wide(rows.take(indices, axis=0))


def wide(values: Hidden) -> F32:
    """Return keys or values as f32."""
    return values.astype(np.float32, copy=False)


def cap(scores: F32, softcap: float) -> None:
    """Keep scores within a bound, where they stand."""
    scores /= softcap
    np.tanh(scores, out=scores)
    scores *= softcap


def exponentials(
    scores: F32, seen: NDArray[np.bool_] | None
) -> tuple[F32, F32 | float]:
    """Turn each row of scores into the numerators of its softmax, where it stands.

    Returns:
        The numerators, and what was taken off each row's scores before.
    """
    moderate = scores.min() > -SAFE_SCORE and scores.max() < SAFE_SCORE
    if seen is not None:
        np.copyto(scores, -np.inf, where=~seen)
    taken_off: F32 | float = 0.0
    if not moderate:
        taken_off = scores.max(axis=-1, keepdims=True)
        scores -= taken_off
    return np.exp(scores, out=scores), taken_off


def visible(batch: AttentionBatch[Ints], window: int | None) -> NDArray[np.bool_]:
    """Tell which keys each query sees, (num_groups, num_queries, num_keys)."""
    queries, keys = batch.query_positions[:, :, None], batch.key_positions[:, None, :]
    seen = keys <= queries
    return seen if window is None else seen & (keys > queries - window)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfAttention:
    """Grouped-query attention; q, k and v come from one product."""

    spec: parts.Attention
    qkv_proj: Linear
    o_proj: Linear
    q_norm: AnyNorm | None
    k_norm: AnyNorm | None
    sinks: F32 | None

    def project(self, x: F32, angles: Angles, scratch: Scratch) -> tuple[F32, F32, F32]:
        """Make rotated queries and keys, and values, of some rows."""
        out = scratch.columns("projected", len(x), len(self.qkv_proj.weight))
        made, size = self.qkv_proj(x, out), self.spec.query_size
        return self._queries(made[:, :size], angles), *self._keys_values(
            made[:, size:], angles
        )

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
        q = rotate(self._heads(q, self.q_norm), angles)
        scale = None if angles is None else angles.query_scale
        return q if scale is None else q * scale

    def _keys_values(self, kv: F32, angles: Angles) -> tuple[F32, F32]:
        size = self.spec.key_value_size
        k, v = kv[:, :size], kv[:, size:]
        return rotate(self._heads(k, self.k_norm), angles), self._heads(v, None)

    def _heads(self, rows: F32, norm: AnyNorm | None) -> F32:
        """Split rows into heads, normalised before or after: as wide as the norm is."""
        if norm is not None and len(norm.weight) == rows.shape[-1]:
            rows, norm = norm(rows), None
        heads = rows.reshape(len(rows), -1, self.spec.head_dim)
        return heads if norm is None else norm(heads)
