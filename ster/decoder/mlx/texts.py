"""Texts that grow, in MLX: their keys and values, and what new tokens see of them.

``stream.texts`` says which lie where. Read it beside ``numpy.texts``.
"""

from __future__ import annotations

import mlx.core as mx

from ster.architecture import parts
from ster.decoder.mlx.attention import attend_capped
from ster.stream.texts import Entering, Leaving, NextTokens


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
    if following.stems:
        return _attend_stems(following, q, cache, attention, sinks)
    keys, values = cache.own(len(q), following.num_own_keys)
    queries, seen = q[:, :, None], following.seen
    mask = None if seen is None else seen[:, None, None]
    if attention.softcap is not None:
        scaled = queries * attention.scale
        out = attend_capped(scaled, keys, values, mask, attention.softcap)
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
    """Do the same where some texts begin alike."""
    own_keys, own_values = cache.own(len(q), following.num_own_keys)
    num_texts, num_heads, head_dim = q.shape
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
    return out.reshape(num_texts, -1)


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
        device: Where they lie.
    """

    STEP = 256

    def __init__(
        self,
        width: tuple[int, int],
        dtype: mx.Dtype,
        max_tokens: int,
        device: mx.Device,
    ) -> None:
        kv_heads, head_dim = width
        self._keys = mx.zeros((0, kv_heads, 0, head_dim), dtype)
        self._values = mx.zeros((0, kv_heads, 0, head_dim), dtype)
        self._stems: dict[int, tuple[mx.array, mx.array]] = {}
        self._max_tokens = max_tokens
        self._device = device

    @property
    def held(self) -> list[mx.array]:
        """Return all arrays, so that what was written into them is evaluated."""
        stems = [array for both in self._stems.values() for array in both]
        return [self._keys, self._values, *stems]

    @property
    def own_bytes(self) -> int:
        """Return the size of own keys and values, room for others included."""
        return self._keys.nbytes + self._values.nbytes

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
        if leaving.moves:
            # At once: a text that is moved for itself makes MLX copy all of them.
            with mx.stream(self._device):
                sources, targets = mx.array(leaving.moves).T
                self._keys[targets] = self._keys[sources]
                self._values[targets] = self._values[sources]
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
