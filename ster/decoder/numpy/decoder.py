"""A decoder on the cpu, for one run. Read it beside ``mlx.decoder``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ster.architecture.spec import ModelSpec
from ster.decoder.contract import (
    Cache,
    Chosen,
    Decoder,
    DeviceMemory,
    Footprint,
    Weights,
)
from ster.decoder.memory import free_memory, held_memory, peak_memory
from ster.decoder.numpy.attention import MAX_GATHERED, MAX_SCORES, cap
from ster.decoder.numpy.block import NumpyBlock
from ster.decoder.numpy.moves import move
from ster.decoder.numpy.parts import ACTIVATED_VALUES, F32, rounded, slice_rows
from ster.decoder.numpy.texts import NumpyCache
from ster.decoder.numpy.threads import quiet, usable_cores
from ster.decoder.numpy.weights import (
    Head,
    NumpyWeights,
    Room,
    block_bytes,
    head_bytes,
    open_bytes,
)
from ster.decoder.sampling import Drawing, log_sum_exp
from ster.stream.attention import MIN_QUERIES, Attention
from ster.stream.changes import Moves
from ster.stream.packing import Ints
from ster.stream.rotary import RotaryTables
from ster.stream.texts import Entering, NextTokens

# Packing and positions, for a token.
INDEX_BYTES = 128
# A key and its position in attention's lists, and while they are made.
KEY_BYTES = 24
# Rows that are steered at once, each with its vector.
STEERED_ROWS = 1024
# The same where they are moved, which takes a few times as much beside them.
MOVED_ROWS = 256
# Rows of logits whose exponentials are added up at once.
SUMMED_ROWS = 8
# A difference of two logits, of their size, that may come from rounding: a text alone
# is multiplied in another order than many. As measured, the two largest of a row then
# come 3e-6 nearer to each other or farther apart, at most.
CLOSE = 5e-6
# What Python takes as a run goes on: modules that are loaded late, small objects.
PYTHON_BYTES = 4 << 20


def check_available(device: str) -> None:
    """Refuse nothing: every machine has a cpu."""
    del device


def device_memory(device: str) -> DeviceMemory:
    """Say what the process holds, and a share of what is free beside it."""
    del device
    held = held_memory()
    limit, peak = held + free_memory(), peak_memory()
    return DeviceMemory(held=held, limit=limit, peak=peak)


def footprint(model: ModelSpec, *, precision: str, longest_prompt: int) -> Footprint:
    """Count what a decoder takes; see ``contract.Footprint``."""
    width = 2 if precision == "f16" else 4
    blocks = tuple(map(block_bytes, model.layers))
    widest = [_layer_widths(model, layer, width) for layer in range(len(model.layers))]
    token, slices = (max(each, default=0) for each in zip(*widest, strict=True))
    heads, keys = model.max_heads, model.max_key_value_size
    scores = max(MAX_SCORES, MIN_QUERIES * longest_prompt * heads)
    gathered = 2 * max(MAX_GATHERED, longest_prompt * keys)
    # Groups of queries that share a batch hold copies of their keys' lists.
    lists = KEY_BYTES * MAX_SCORES // heads // (2 * MIN_QUERIES**2)
    return Footprint(
        blocks=blocks,
        open_bytes=max(map(open_bytes, model.layers), default=0),
        head_bytes=head_bytes(model),
        embedding_bytes=0,
        token_bytes=8 * model.hidden_size + token + INDEX_BYTES + lists,
        point_bytes=4 * model.hidden_size,
        key_bytes=KEY_BYTES,
        row_bytes=4 * model.hidden_size,
        logit_bytes=4 * model.vocab_size,
        choice_bytes=4 * model.vocab_size,
        cache_bytes=sum(
            2 * width * each.attention.key_value_size for each in model.layers
        ),
        fixed_bytes=PYTHON_BYTES
        + usable_cores() * 4 * (slices + 3 * scores + gathered),
    )


def _layer_widths(model: ModelSpec, layer: int, width: int) -> tuple[int, int]:
    """Count what a layer takes of a token, in bytes, and of a slice, in values."""
    block = model.layers[layer]
    attention, inner = block.attention, block.feed_forward.intermediate_size
    keys, queries = attention.key_value_size, attention.query_size
    # Queries, keys, values, and the angles as they are made and as they are used.
    token = 4 * (queries + 2 * keys + 2 * attention.head_dim)
    projected = queries + 2 * keys
    values = 4 * model.hidden_size + 3 * projected + block.feed_forward.widest
    if width != 4:  # what a product takes is rounded and widened again beside it
        values += 3 * max(model.hidden_size, queries, inner) // 2
    return token, values * slice_rows(inner) + 2 * ACTIVATED_VALUES


def hold_weights(model: ModelSpec, *, device: str, precision: str) -> NumpyWeights:
    """Make what will hold a checkpoint's weights."""
    del device  # there is one
    return NumpyWeights(model, np.dtype(np.float16 if precision == "f16" else "f4"))


class NumpyDecoder:
    """The blocks of a checkpoint on the cpu; see ``contract.Decoder``.

    Args:
        weights: What is held of it.
        keep: Blocks stay once they are made.
    """

    def __init__(self, weights: NumpyWeights, *, keep: bool) -> None:
        self._weights = weights
        self._keep = keep
        # One block is open at a time, so the next may be made where the last one was.
        self._room: Room = {}
        self._head: Head | None = None

    @property
    def spec(self) -> ModelSpec:
        """Return what the decoder is."""
        return self._weights.model

    @property
    def keeps_blocks(self) -> bool:
        """Tell whether blocks stay once they have been opened."""
        return self._keep

    @property
    def max_attention_pairs(self) -> int:
        """Return how many query-key pairs one attention batch may hold."""
        return MAX_SCORES // self.spec.max_heads

    @property
    def max_attention_keys(self) -> int:
        """Return how many keys one attention batch may gather."""
        return MAX_GATHERED // self.spec.max_key_value_size

    @property
    def works_ahead(self) -> bool:
        """Tell that numpy returns when its work is done."""
        return False

    def embed(self, token_ids: Ints, position_ids: Ints) -> F32:
        """Gather embedding rows; see ``contract.Decoder``."""
        embedding, dtype = self._weights.embedding(), self._weights.dtype
        rows = rounded(embedding.take(token_ids), dtype)
        if self.spec.embedding_scale != 1:
            rows *= self.spec.embedding_scale
        positions = self._weights.positions()
        if positions is not None:
            rows += rounded(positions.take(position_ids), dtype)
        return np.asfortranarray(rows, np.float32)

    def take(self, hidden: F32, rows: Ints) -> F32:
        """Take some rows of a stream."""
        return hidden[rows]

    def log_probabilities(
        self, hidden: F32, places: Ints, token_ids: Ints
    ) -> NDArray[np.float64]:
        """Compute how likely tokens are; see ``contract.Decoder``."""
        logits = self.unembed(hidden)
        chosen = logits[places, token_ids].astype(np.float64)
        total = np.empty(len(logits), np.float64)

        def add_up(rows: slice) -> None:
            total[rows] = log_sum_exp(logits[rows])

        starts = range(0, len(logits), SUMMED_ROWS)
        parts = [slice(at, at + SUMMED_ROWS) for at in starts]
        self._weights.threads.map(add_up, parts)
        return chosen - total[places]

    def choose(self, hidden: F32, drawing: Drawing | None) -> Chosen[Any]:
        """Choose the token after each row; see ``contract.Decoder``."""
        logits = self.unembed(hidden)
        texts = np.arange(len(logits))
        most, least = logits.max(axis=1), logits.min(axis=1)
        is_finite = np.isfinite(most) & np.isfinite(least)
        is_close = np.zeros(len(logits), np.bool_)
        if drawing is None:
            token_ids = logits.argmax(axis=1)
            logits[texts, token_ids] = -np.inf
            with quiet():
                gaps = most - logits.max(axis=1)
                is_close = gaps <= CLOSE * np.maximum(most, -least)
        else:
            drawn = (
                drawing.draw(row, text) if is_finite[text] else -1
                for text, row in enumerate(logits)
            )
            token_ids = np.fromiter(drawn, np.int64)
        token_ids = np.where(is_finite, token_ids, -1)
        return Chosen(token_ids=token_ids, is_close=is_close)

    def to_host(self, chosen: Ints) -> Ints:
        """Take it as it is."""
        return chosen

    def unembed(self, hidden: F32) -> F32:
        """Apply final norm and head; see ``contract.Decoder``."""
        if self._head is None:
            self._head = self._weights.head(keep=self._keep)
        norm, head = self._head
        with quiet():
            logits = head(norm(hidden))
            if self.spec.logit_scale != 1:
                logits *= self.spec.logit_scale
            if self.spec.logit_softcap is not None:
                cap(logits, self.spec.logit_softcap)
        return logits

    def make_caches(self, max_texts: int, max_tokens: int) -> list[Cache[Any]]:
        """Make an empty cache for every layer."""
        dtype = self._weights.dtype
        layers = [each.attention for each in self.spec.layers]
        widths = [(each.num_key_value_heads, each.head_dim) for each in layers]
        return [NumpyCache(width, dtype, max_texts, max_tokens) for width in widths]

    def vectors(self, values: F32) -> F32:
        """Take them as they are: the stream is f32 too."""
        return values

    def steer(self, hidden: F32, vectors: F32, which: Ints | None) -> F32:
        """Add a vector to every row; see ``contract.Decoder``."""
        with quiet():
            if which is None:
                hidden += vectors[0]
                return hidden
            for at in range(0, len(hidden), STEERED_ROWS):
                part = slice(at, at + STEERED_ROWS)
                hidden[part] += vectors[which[part]]
        return hidden

    def moves(self, moves: Moves[F32]) -> Moves[F32]:
        """Take them as they are."""
        return moves

    def move(self, hidden: F32, moves: Moves[F32], which: Ints | None) -> F32:
        """Move every row along a direction; see ``contract.Decoder``."""
        with quiet():
            for at in range(0, len(hidden), MOVED_ROWS):
                part = slice(at, at + MOVED_ROWS)
                move(hidden[part], moves, None if which is None else which[part])
        return hidden

    @contextmanager
    def block(self, layer: int) -> Iterator[NumpyBlock]:
        """Open a block; see ``contract.Decoder``."""
        yield self._weights.block(layer, keep=self._keep, room=self._room)

    def bring_rotary(self, tables: RotaryTables[F32]) -> RotaryTables[Any]:
        """Lay the tables out as the stream lies."""
        return RotaryTables(
            cos=np.asfortranarray(tables.cos),
            sin=np.asfortranarray(tables.sin),
            query_scale=tables.query_scale,
        )

    def bring_attention(self, attention: Attention[Ints]) -> Attention[Any]:
        """Take it as it is."""
        return attention

    def bring_following(self, following: NextTokens[Any]) -> NextTokens[Any]:
        """Take it as it is."""
        return following

    def bring_entering(self, entering: Entering[Ints]) -> Entering[Any]:
        """Take it as it is."""
        return entering

    def rows(self, hidden: F32, rows: Ints) -> F32:
        """Copy rows out."""
        return self.take(hidden, rows)

    def materialize(self, hidden: F32, *points: F32) -> None:
        """Do nothing: numpy has finished its work."""

    def close(self) -> None:
        """Let go of what stood between a block's products; see ``contract.Decoder``."""
        self._room, self._head = {}, None
        self._weights.scratch.clear()


def open_decoder(weights: NumpyWeights, *, keep: bool) -> NumpyDecoder:
    """Open a decoder for one run; see ``contract.Weights``."""
    return NumpyDecoder(weights, keep=keep)


def _conforms(
    weights: NumpyWeights, decoder: NumpyDecoder
) -> tuple[Weights, Decoder[Any]]:
    """Hold this module to the contract, in the type checker."""
    return weights, decoder
