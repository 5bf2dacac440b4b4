"""Texts that grow, in numpy: their keys and values, and what new tokens see of them.

``stream.texts`` says which lie where.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ster.architecture import parts
from ster.decoder.numpy.attention import cap, exponentials, wide
from ster.decoder.numpy.parts import F32, Hidden
from ster.stream.packing import Ints
from ster.stream.texts import Entering, Leaving, NextTokens


def attend_following(
    following: NextTokens[Any],
    q: F32,
    cache: NumpyCache,
    attention: parts.Attention,
    sinks: F32 | None = None,
) -> F32:
    """Attend from each text's new token to what it sees.

    Args:
        following: Who sees what.
        q: Queries, (num_texts, num_heads, head_dim).
        cache: Keys and values of all texts.
        attention: How scores are made.
        sinks: As for ``attend``.

    Returns:
        (num_texts, num_heads · head_dim).
    """
    num_texts, num_heads, head_dim = q.shape
    own_keys, own_values = cache.own(num_texts, following.num_own_keys)
    kv_heads, split = own_keys.shape[1], following.num_stem_keys
    queries = np.multiply(q, np.float32(attention.scale), order="C").reshape(
        num_texts, kv_heads, num_heads // kv_heads, head_dim
    )
    shape = *queries.shape[:3], split + following.num_own_keys
    # Between the stems of a text nothing is: what is not written is not seen.
    scores = np.zeros(shape, np.float32) if split else np.empty(shape, np.float32)
    for stem in following.stems:
        keys, _ = cache.stem(stem.number)
        scores[stem.texts, ..., stem.start : stem.stop] = _with_stem(
            queries[stem.texts], keys.swapaxes(-1, -2)
        )
    np.matmul(queries, own_keys.swapaxes(-1, -2), out=scores[..., split:])
    if attention.softcap is not None:
        cap(scores, attention.softcap)
    seen = None if following.seen is None else following.seen[:, None, None]
    scores, taken_off = exponentials(scores, seen)
    total = np.einsum("...k->...", scores)[..., None]
    if sinks is not None:
        total += np.exp(sinks.reshape(kv_heads, -1, 1) - taken_off)
    out = scores[..., split:] @ own_values
    for stem in following.stems:
        _, values = cache.stem(stem.number)
        shares = scores[stem.texts, ..., stem.start : stem.stop]
        out[stem.texts] += _with_stem(shares, values)
    out /= total
    return out.reshape(num_texts, -1)


def _with_stem(rows: F32, stem: F32) -> F32:
    """Multiply rows of several texts with what they share, in one product a head.

    Args:
        rows: (num_texts, num_key_value_heads, heads of each, width).
        stem: (num_key_value_heads, width, other width).

    Returns:
        (num_texts, num_key_value_heads, heads of each, other width).
    """
    num_texts, kv_heads, shared, width = rows.shape
    flat = rows.transpose(1, 0, 2, 3).reshape(kv_heads, num_texts * shared, width)
    made = (flat @ stem).reshape(kv_heads, num_texts, shared, -1)
    return made.transpose(1, 0, 2, 3)


class NumpyCache:
    """One layer's keys and values; see ``contract.Cache``.

    Own tokens lie text by text and head by head, (num_texts, num_key_value_heads,
    num_tokens, head_dim), with room for all that a text may have.

    Args:
        width: Number of key heads and width of a head.
        dtype: Of keys and values.
        max_texts: There will be no more texts.
        max_tokens: No text will have more own tokens.
    """

    def __init__(
        self,
        width: tuple[int, int],
        dtype: np.dtype[Any],
        max_texts: int,
        max_tokens: int,
    ) -> None:
        kv_heads, head_dim = width
        shape = max_texts, kv_heads, max_tokens, head_dim
        # Zeros take no memory until something is written over them. What pads a text
        # has no share, but has to be finite.
        self._keys: Hidden = np.zeros(shape, dtype)
        self._values = np.zeros(shape, dtype)
        self._stems: dict[int, tuple[Any, Any]] = {}

    def own(self, num_texts: int, num_tokens: int) -> tuple[F32, F32]:
        """Return own keys and values of the first texts, the padding included."""
        held = self._keys, self._values
        keys, values = (each[:num_texts, :, :num_tokens] for each in held)
        return wide(keys), wide(values)

    def stem(self, number: int) -> tuple[F32, F32]:
        """Return a stem's keys and values, (num_key_value_heads, num_tokens, ...)."""
        keys, values = self._stems[number]
        return wide(keys), wide(values)

    def enter(self, keys: Hidden, values: Hidden, entering: Entering[Ints]) -> None:
        """Take those of a stream; see ``contract.Cache``."""
        for stem in entering.stems:
            self._stems[stem.number] = (
                np.ascontiguousarray(keys[stem.rows].swapaxes(0, 1)),
                np.ascontiguousarray(values[stem.rows].swapaxes(0, 1)),
            )
        _, num_tokens = entering.rows.shape
        for text, rows in enumerate(entering.rows, entering.first):
            self._keys[text, :, :num_tokens] = keys[rows].swapaxes(0, 1)
            self._values[text, :, :num_tokens] = values[rows].swapaxes(0, 1)

    def append(self, keys: Hidden, values: Hidden, following: NextTokens[Any]) -> None:
        """Take those of new tokens; see ``contract.Cache``."""
        texts, last = np.arange(len(keys)), following.lengths - 1
        self._keys[texts, :, last] = keys
        self._values[texts, :, last] = values

    def leave(self, leaving: Leaving) -> None:
        """Let go of those of texts that leave; see ``contract.Cache``."""
        for source, target in leaving.moves:
            for held in (self._keys, self._values):
                held[target] = held[source]
        for stem in leaving.stems:
            del self._stems[stem]
