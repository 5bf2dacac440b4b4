"""The blocks of the Llama family in MLX, on Apple's Metal and on CUDA.

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

from ster.architecture.config import DecoderConfig
from ster.decoder.contract import Cache, Wave
from ster.stream.attention import Attention, AttentionBatch

# Scores of one attention batch, over all heads: what an unfused kernel materialises.
MAX_SCORES = 1 << 25
# Values of the keys that one attention batch gathers, and so of its values.
MAX_GATHERED = 1 << 23
# Multiplications of one product: a fraction of a second on the slowest of these GPUs,
# so that no command keeps the screen waiting.
MAX_PRODUCT = 1 << 38
# MLX counts rows with 32 bits, and narrow models would get more at once.
MAX_ROWS = 1 << 20


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


def rotate(x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
    """Rotate halves of each head by the tables, (num_rows, num_heads, head_dim) f32."""
    first, second = mx.split(x, 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return mx.concatenate(
        [first * cos - second * sin, second * cos + first * sin], axis=-1
    )


def silu(x: mx.array) -> mx.array:
    """Multiply each value by its sigmoid."""
    return x * mx.sigmoid(x)


def attend(
    batch: AttentionBatch[mx.array],
    q: mx.array,
    k: mx.array,
    v: mx.array,
    window: int | None,
) -> mx.array:
    """Attend within one batch.

    Args:
        batch: Who sees whom.
        q: Queries, (num_queries, num_heads, head_dim) f32.
        k: Keys of the whole stream, (num_tokens, num_key_value_heads, head_dim).
        v: Values, likewise.
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
        scale=q.shape[-1] ** -0.5,
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

    config: DecoderConfig
    qkv_proj: Linear
    o_proj: Linear
    q_norm: RMSNorm | None
    k_norm: RMSNorm | None

    def project(
        self, x: mx.array, cos: mx.array, sin: mx.array
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Make rotated queries and keys, and values, of some rows."""
        qkv = self.qkv_proj(x)
        q, kv = mx.split(qkv, [self.config.query_size], axis=-1)
        return self._queries(q, cos, sin), *self._keys_values(kv, cos, sin)

    def keys_values(
        self, x: mx.array, cos: mx.array, sin: mx.array
    ) -> tuple[mx.array, mx.array]:
        """Make rotated keys, and values, of some rows."""
        start = self.config.query_size
        kv = self.qkv_proj.outputs(start, start + 2 * self.config.key_value_size)(x)
        return self._keys_values(kv, cos, sin)

    def queries(self, x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
        """Make rotated queries of some rows."""
        q = self.qkv_proj.outputs(0, self.config.query_size)(x)
        return self._queries(q, cos, sin)

    def _queries(self, q: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
        q = q.reshape(len(q), -1, self.config.head_dim)
        if self.q_norm is not None:
            q = self.q_norm(q)
        return rotate(q, cos, sin)

    def _keys_values(
        self, kv: mx.array, cos: mx.array, sin: mx.array
    ) -> tuple[mx.array, mx.array]:
        kv = kv.reshape(len(kv), -1, self.config.head_dim)
        k, v = mx.split(kv, 2, axis=1)
        if self.k_norm is not None:
            k = self.k_norm(k)
        return rotate(k, cos, sin), v


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
    """One layer's keys and values in arrays that grow by whole steps.

    Args:
        width: Number of key heads and width of a head.
        dtype: The stream's width.
    """

    STEP = 256

    def __init__(self, width: tuple[int, int], dtype: mx.Dtype) -> None:
        self._keys = mx.zeros((0, *width), dtype)
        self._values = mx.zeros((0, *width), dtype)
        self._length = 0

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
        rows = max(-(-size // self.STEP) * self.STEP, 2 * len(held)) - self._length
        room = mx.zeros((rows, *held.shape[1:]), held.dtype)
        return mx.concatenate([held[: self._length], room])


@dataclass(frozen=True, slots=True, kw_only=True)
class MLXBlock:
    """One block with its weights, written down to be evaluated by the loop."""

    config: DecoderConfig
    input_layernorm: RMSNorm
    self_attn: SelfAttention
    post_attention_layernorm: RMSNorm
    mlp: MLP
    device: mx.Device

    def __call__(
        self,
        hidden: mx.array,
        wave: Wave[mx.array],
        cache: Cache[mx.array] | None = None,
    ) -> mx.array:
        """Run the block; see ``contract.Block``."""
        with mx.stream(self.device):
            q, k, v = self._project(hidden, wave)
            if cache is not None:
                k, v = cache.append(k, v)
            context = self._attend(wave.attention, q, k, v)
            rows = wave.attention.rows
            return self._finish(hidden if rows is None else hidden[rows], context)

    def _project(
        self, hidden: mx.array, wave: Wave[mx.array]
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Make queries, keys and values; keys and values at the stream's width."""
        rows, attn = wave.attention.rows, self.self_attn
        x = self.input_layernorm(hidden.astype(mx.float32))
        cos, sin = wave.cos, wave.sin
        outputs = self.config.query_size + 2 * self.config.key_value_size
        parts = self._parts(len(hidden), outputs)
        if rows is None:
            made = [attn.project(x[p], cos[p], sin[p]) for p in parts]
            q, k, v = (mx.concatenate([*pieces]) for pieces in zip(*made, strict=True))
        else:
            kv = [attn.keys_values(x[p], cos[p], sin[p]) for p in parts]
            k, v = (mx.concatenate([*pieces]) for pieces in zip(*kv, strict=True))
            q = attn.queries(x[rows], cos[rows], sin[rows])
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
            batches.append(attend(batch, q, k, v, attention.window))
        return mx.concatenate(batches)[attention.order]

    def _finish(self, hidden: mx.array, context: mx.array) -> mx.array:
        """Add attention and feed-forward part, rounding each sum to the stream."""

        def finish(part: slice) -> mx.array:
            resid = hidden[part].astype(mx.float32)
            resid = resid + self.self_attn.o_proj(context[part])
            resid = resid.astype(hidden.dtype).astype(mx.float32)
            return resid + self.mlp(self.post_attention_layernorm(resid))

        parts = self._parts(len(hidden), 2 * self.config.intermediate_size)
        return mx.concatenate([finish(p) for p in parts]).astype(hidden.dtype)

    def _parts(self, num_rows: int, outputs: int) -> list[slice]:
        """Cut rows so that no product of the hidden width is too long a command."""
        values = self.config.hidden_size * outputs
        step = min(max(1, MAX_PRODUCT // values), MAX_ROWS)
        return [slice(at, at + step) for at in range(0, num_rows, step)]
