"""A block in MLX, on Apple's Metal and on CUDA.

Read it beside ``numpy.block``: the same classes in the same order. What is different
here is that evaluation is lazy: a block only writes down its work, and the loop's one
call of ``rows`` or ``materialize`` a block does it. Nothing inside a block comes back
to the host.

Arithmetic is f32 whatever the precision; an f16 or bf16 run rounds the weights, the
residual stream, and keys and values. Half-width products would round every intermediate
too, and bf16 has too few digits for that: on small random checkpoints the residuals
were three times further from the truth.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from ster.architecture import spec
from ster.decoder.contract import Cache, LayerInputs
from ster.stream.attention import Attention, AttentionBatch
from ster.stream.rotary import RotaryTables

# Scores of one attention batch, over all heads: what an unfused kernel materialises.
MAX_SCORES = 1 << 25
# Values of the keys that one attention batch gathers, and so of its values.
MAX_GATHERED = 1 << 23
# Multiplications of one product: a tenth of a second on the slowest of these GPUs, so
# that no command keeps the screen waiting or meets the watchdog.
MAX_PRODUCT = 1 << 36
# MLX counts rows with 32 bits, and narrow models would get more at once.
MAX_ROWS = 1 << 20

# Cosines and sines of some rows, or None where nothing turns.
Angles = tuple[mx.array, mx.array] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """y = x Wᵀ + b, with W as the checkpoint stores it, (outputs, inputs).

    The weight is kept at the run's precision and widened where it is used.
    """

    weight: mx.array
    bias: mx.array | None

    def __call__(self, x: mx.array) -> mx.array:
        """Apply to rows, (num_rows, inputs) -> (num_rows, outputs)."""
        y = x @ self.weight.astype(mx.float32).T
        return y if self.bias is None else y + self.bias

    def outputs(self, start: int, stop: int) -> Linear:
        """Return the part that makes some of the outputs."""
        bias = None if self.bias is None else self.bias[start:stop]
        return Linear(weight=self.weight[start:stop], bias=bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class RMSNorm:
    """x / sqrt(mean(x²) + eps) · w over the last axis."""

    weight: mx.array
    eps: float

    def __call__(self, x: mx.array) -> mx.array:
        """Normalise rows of any leading shape."""
        return mx.fast.rms_norm(x, self.weight, self.eps)


def rotate(x: mx.array, angles: Angles) -> mx.array:
    """Rotate halves of each head by the tables, (num_rows, num_heads, head_dim) f32."""
    if angles is None:
        return x
    first, second = mx.split(x, 2, axis=-1)
    cos, sin = angles[0][:, None], angles[1][:, None]
    return mx.concatenate(
        [first * cos - second * sin, second * cos + first * sin], axis=-1
    )


def angles_of(tables: RotaryTables[mx.array] | None, rows: slice | mx.array) -> Angles:
    """Take some rows of the tables."""
    return None if tables is None else (tables.cos[rows], tables.sin[rows])


def silu(x: mx.array) -> mx.array:
    """Multiply each value by its sigmoid."""
    return x * mx.sigmoid(x)


def attend(
    batch: AttentionBatch[mx.array],
    q: mx.array,
    k: mx.array,
    v: mx.array,
    *,
    scale: float,
    window: int | None,
) -> mx.array:
    """Attend within one batch.

    Args:
        batch: Who sees whom.
        q: Queries, (num_queries, num_heads, head_dim) f32.
        k: Keys of the whole stream, (num_tokens, num_key_value_heads, head_dim).
        v: Values, likewise.
        scale: Multiplies the scores.
        window: How many tokens a query sees.

    Returns:
        (num_groups · num_queries, num_heads · head_dim) f32, in the batch's order.
    """
    groups, num_queries = batch.queries.shape
    # A token that is generated; without a mask a faster kernel serves it.
    sees_all = batch.keys is None and num_queries == 1 and window is None
    out = mx.fast.scaled_dot_product_attention(
        q[batch.queries].swapaxes(1, 2),
        _gather(k, batch.keys).swapaxes(1, 2),
        _gather(v, batch.keys).swapaxes(1, 2),
        scale=scale,
        mask=None if sees_all else visible(batch, window)[:, None],
    )
    return out.swapaxes(1, 2).reshape(groups * num_queries, -1)


def _gather(rows: mx.array, indices: mx.array | None) -> mx.array:
    """Take each group's keys or values as f32; None is all of them, for one group."""
    taken = rows[None] if indices is None else rows[indices]
    return taken.astype(mx.float32)


def visible(batch: AttentionBatch[mx.array], window: int | None) -> mx.array:
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
        return rotate(self._heads(q, self.q_norm), angles)

    def _keys_values(self, kv: mx.array, angles: Angles) -> tuple[mx.array, mx.array]:
        k, v = mx.split(kv, 2, axis=-1)
        return rotate(self._heads(k, self.k_norm), angles), self._heads(v, None)

    def _heads(self, rows: mx.array, norm: RMSNorm | None) -> mx.array:
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

    def __call__(self, x: mx.array) -> mx.array:
        """Apply to rows, (num_rows, hidden_size)."""
        gate, up = mx.split(self.gate_up_proj(x), 2, axis=-1)
        return self.down_proj(silu(gate) * up)


class MLXCache:
    """One layer's keys and values in arrays that grow by whole steps, up to a bound.

    Args:
        width: Number of key heads and width of a head.
        dtype: The stream's width.
        max_tokens: No more will be held.
    """

    STEP = 256

    def __init__(
        self, width: tuple[int, int], dtype: mx.Dtype, max_tokens: int
    ) -> None:
        self._keys = mx.zeros((0, *width), dtype)
        self._values = mx.zeros((0, *width), dtype)
        self._length = 0
        self._max_tokens = max_tokens

    def append(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Add tokens; see ``contract.Cache``."""
        start, stop = self._length, self._length + len(keys)
        if stop > len(self._keys):
            self._keys = self._grown(self._keys, stop)
            self._values = self._grown(self._values, stop)
        # MLX writes in place what nothing else holds.
        self._keys[start:stop], self._values[start:stop] = keys, values
        self._length = stop
        return self._keys[:stop], self._values[:stop]

    def _grown(self, held: mx.array, size: int) -> mx.array:
        # Doubling as well, so that a long text is not copied every 256 tokens.
        wished = max(-(-size // self.STEP) * self.STEP, 2 * len(held))
        rows = max(min(wished, self._max_tokens), size) - self._length
        room = mx.zeros((rows, *held.shape[1:]), held.dtype)
        return mx.concatenate([held[: self._length], room])


@dataclass(frozen=True, slots=True, kw_only=True)
class MLXBlock:
    """One block with its weights, written down to be evaluated by the loop."""

    spec: spec.LayerSpec
    attention_norm: RMSNorm | None
    self_attn: SelfAttention
    attention_out_norm: RMSNorm | None
    feed_forward_norm: RMSNorm | None
    mlp: MLP
    feed_forward_out_norm: RMSNorm | None
    device: mx.Device

    def __call__(
        self,
        hidden: mx.array,
        inputs: LayerInputs[mx.array],
        cache: Cache[mx.array] | None,
    ) -> mx.array:
        """Run the block; see ``contract.Block``."""
        with mx.stream(self.device):
            q, k, v = self._project(hidden, inputs)
            if cache is not None:
                k, v = cache.append(k, v)
            context = self._attend(inputs.attention, q, k, v)
            rows = inputs.attention.rows
            return self._finish(hidden if rows is None else hidden[rows], context)

    def _project(
        self, hidden: mx.array, inputs: LayerInputs[mx.array]
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Make queries, keys and values; keys and values at the stream's width."""
        rows, attn, tables = inputs.attention.rows, self.self_attn, inputs.rotary
        x = _normed(hidden.astype(mx.float32), self.attention_norm)
        parts = self._parts(len(hidden), len(attn.qkv_proj.weight))
        if rows is None:
            made = [attn.project(x[p], angles_of(tables, p)) for p in parts]
            q, k, v = (mx.concatenate([*pieces]) for pieces in zip(*made, strict=True))
        else:
            kv = [attn.keys_values(x[p], angles_of(tables, p)) for p in parts]
            k, v = (mx.concatenate([*pieces]) for pieces in zip(*kv, strict=True))
            q = attn.queries(x[rows], angles_of(tables, rows))
        return q, k.astype(hidden.dtype), v.astype(hidden.dtype)

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
            scale, window = self.self_attn.spec.scale, attention.window
            batches.append(attend(batch, q, k, v, scale=scale, window=window))
        return mx.concatenate(batches)[attention.order]

    def _finish(self, hidden: mx.array, context: mx.array) -> mx.array:
        """Add attention and feed-forward part, rounding each sum to the stream."""

        def finish(part: slice) -> mx.array:
            resid = hidden[part].astype(mx.float32)
            added = self.self_attn.o_proj(context[part])
            resid = resid + self._weighed(added, self.attention_out_norm)
            resid = resid.astype(hidden.dtype).astype(mx.float32)
            added = self.mlp(_normed(resid, self.feed_forward_norm))
            return resid + self._weighed(added, self.feed_forward_out_norm)

        parts = self._parts(len(hidden), len(self.mlp.gate_up_proj.weight))
        return mx.concatenate([finish(p) for p in parts]).astype(hidden.dtype)

    def _weighed(self, added: mx.array, norm: RMSNorm | None) -> mx.array:
        """Normalise and scale rows that are to join the stream."""
        added, multiplier = _normed(added, norm), self.spec.residual_multiplier
        return added if multiplier == 1 else added * multiplier

    def _parts(self, num_rows: int, outputs: int) -> list[slice]:
        """Cut rows so that no product of the hidden width is too long a command."""
        values = self.spec.attention.q_proj.inputs * outputs
        step = min(max(1, MAX_PRODUCT // values), MAX_ROWS)
        return [slice(at, at + step) for at in range(0, num_rows, step)]


def _normed(x: mx.array, norm: RMSNorm | None) -> mx.array:
    return x if norm is None else norm(x)
