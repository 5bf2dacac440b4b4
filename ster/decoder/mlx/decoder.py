"""A decoder on Metal or CUDA, for one run. Read it beside ``numpy.decoder``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ster.architecture.spec import ModelSpec
from ster.decoder.contract import Cache, Chosen, Decoder, DeviceMemory, Weights
from ster.decoder.devices import MLX_CPU, not_built
from ster.decoder.memory import free_memory, held_memory, peak_memory
from ster.decoder.mlx.attention import MAX_GATHERED, MAX_SCORES
from ster.decoder.mlx.block import MLXBlock
from ster.decoder.mlx.failures import device_failures, wait_for
from ster.decoder.mlx.footprint import CACHE_BYTES, footprint, model_bytes
from ster.decoder.mlx.indices import (
    bring_attention,
    bring_entering,
    bring_following,
    indices,
)
from ster.decoder.mlx.limits import buffer_cache, wired_memory
from ster.decoder.mlx.moves import bring_moves, move
from ster.decoder.mlx.sampling import draw
from ster.decoder.mlx.texts import MLXCache
from ster.decoder.mlx.weights import Head, MLXWeights
from ster.decoder.sampling import Drawing, log_sum_exp
from ster.errors import DeviceError
from ster.stream.attention import Attention
from ster.stream.changes import Moves
from ster.stream.packing import Ints
from ster.stream.rotary import RotaryTables
from ster.stream.texts import Entering, NextTokens

# What ``devices.Implementation`` offers is here, whichever page counts it.
__all__ = ["footprint"]

F32 = NDArray[np.float32]
# Keys and values beside which a token is not worth working ahead: while the one before
# is at work MLX does not write into them in place, and may copy them all.
MAX_AHEAD_BYTES = 1 << 26
DTYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}


def check_available(device: str) -> None:
    """Refuse a device that this MLX does not have, or whose driver does not start.

    Raises:
        DeviceError: It is not here, or does not start.
    """
    backends = {"metal": ("Metal", mx.metal), "cuda": ("CUDA", mx.cuda)}
    if device not in backends:
        return
    spelled, backend = backends[device]
    if not backend.is_available():
        raise not_built(device)
    try:
        with mx.stream(mx.gpu):
            mx.eval(mx.zeros(1) + 1)
    except Exception as error:
        raise DeviceError(f"failed to initialize {spelled} device", error) from error


def device_memory(device: str) -> DeviceMemory:
    """Say what MLX holds on the device, and what the device lets a process hold.

    Metal's buffers do not show in what the system counts for a process, and much of
    what it calls taken is given up when a GPU asks: so both numbers are MLX's own.
    """
    if device == MLX_CPU:
        held = held_memory()
        limit, peak = held + free_memory(), peak_memory()
        return DeviceMemory(held=held, limit=limit, peak=peak)
    held, known = int(mx.get_active_memory()), mx.device_info(mx.gpu)
    peak = int(mx.get_peak_memory())
    if "max_recommended_working_set_size" in known:
        limit = int(known["max_recommended_working_set_size"])
        return DeviceMemory(held=held, limit=limit, peak=peak)
    # On CUDA others may have taken some of it.
    free = int(known.get("free_memory", known.get("memory_size", 2**62)))
    return DeviceMemory(held=held, limit=held + free, peak=peak)


def hold_weights(model: ModelSpec, *, device: str, precision: str) -> MLXWeights:
    """Make what will hold a checkpoint's weights."""
    place = mx.Device(mx.cpu if device == MLX_CPU else mx.gpu)
    return MLXWeights(model, DTYPES[precision], place)


def open_decoder(weights: MLXWeights, *, keep: bool) -> MLXDecoder:
    """Open a decoder for one run."""
    return MLXDecoder(weights, keep=keep)


class MLXDecoder:
    """The blocks of a checkpoint on a GPU; see ``contract.Decoder``.

    Args:
        weights: What is held of it.
        keep: Blocks stay once they are made.
    """

    def __init__(self, weights: MLXWeights, *, keep: bool) -> None:
        self._weights = weights
        self._device = weights.device
        self._keep = keep
        self._layer = 0
        # The next block, copied while the device works on this one.
        self._next: dict[int, MLXBlock] = {}
        self._head: Head | None = None
        self._caches: list[MLXCache] = []
        buffer_cache.hold(CACHE_BYTES)
        # Weights that come and go are not worth keeping in memory.
        self._wires = keep and self._device == mx.gpu
        if self._wires:
            wired_memory.hold(self._wired_bytes(0))

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
        """Tell whether one token's work may be written down before the last is known.

        It needs the embedding on the device, and caches that may be copied.
        """
        if not self._keep:
            return False
        return sum(each.own_bytes for each in self._caches) <= MAX_AHEAD_BYTES

    def embed(self, token_ids: Ints | mx.array, position_ids: Ints) -> mx.array:
        """Gather embedding rows; see ``contract.Decoder``."""
        dtype = self._weights.dtype
        with mx.stream(self._device), device_failures():
            if isinstance(token_ids, mx.array):
                table = self._weights.table(keep=self._keep)
                rows = table.rows(token_ids).astype(dtype).astype(mx.float32)
            else:
                rows = _rounded(self._weights.embedding().take(token_ids), dtype)
            if self.spec.embedding_scale != 1:
                rows = rows * self.spec.embedding_scale
            positions = self._weights.positions()
            if positions is not None:
                rows = rows + _rounded(positions.take(position_ids), dtype)
            return rows

    def take(self, hidden: mx.array, rows: Ints) -> mx.array:
        """Take some rows of a stream."""
        with mx.stream(self._device):
            return hidden[indices(rows)]

    def log_probabilities(
        self, hidden: mx.array, places: Ints, token_ids: Ints
    ) -> NDArray[np.float64]:
        """Compute how likely tokens are; see ``contract.Decoder``."""
        # On the host: MLX's exponentials are so fast that sums of them are off by 1e-4.
        logits = self.unembed(hidden)
        chosen = logits[places, token_ids].astype(np.float64)
        return chosen - log_sum_exp(logits)[places]

    def choose(self, hidden: mx.array, drawing: Drawing | None) -> Chosen[mx.array]:
        """Choose the token after each row; see ``contract.Decoder``."""
        logits = self._logits(hidden)
        with mx.stream(self._device), device_failures():
            token_ids = (
                logits.argmax(axis=-1) if drawing is None else draw(logits, drawing)
            )
            is_finite = mx.isfinite(logits).all(axis=-1)
            token_ids = mx.where(is_finite, token_ids.astype(mx.int32), -1)
            is_close = mx.zeros(len(logits), mx.bool_)
            # Whatever is not begun here would wait for the token after this one. With
            # what the caches took in, or its source stays until the next token.
            held = [array for cache in self._caches for array in cache.held]
            mx.async_eval(token_ids, is_close, *held)  # type: ignore[no-untyped-call] # no types
            return Chosen(token_ids=token_ids, is_close=is_close)

    def to_host(self, chosen: mx.array) -> Ints:
        """Wait for what was chosen, and copy it out."""
        with device_failures():
            return np.array(chosen)

    def unembed(self, hidden: mx.array) -> F32:
        """Apply final norm and head; see ``contract.Decoder``."""
        logits = self._logits(hidden)
        with device_failures():
            mx.eval(logits)
            return np.array(logits)

    def _logits(self, hidden: mx.array) -> mx.array:
        if self._head is None:
            self._head = self._weights.head(keep=self._keep)
        norm, head = self._head
        with mx.stream(self._device), device_failures():
            logits = head(norm(hidden))
            if self.spec.logit_scale != 1:
                logits = logits * self.spec.logit_scale
            softcap = self.spec.logit_softcap
            if softcap is not None:
                logits = softcap * mx.tanh(logits / softcap)
            return logits

    def make_caches(self, max_texts: int, max_tokens: int) -> list[Cache[mx.array]]:
        """Make an empty cache for every layer."""
        if self._wires:
            wired_memory.widen(self._wired_bytes(max_texts * max_tokens))
        dtype = self._weights.dtype
        layers = [each.attention for each in self.spec.layers]
        with mx.stream(self._device):
            widths = [(each.num_key_value_heads, each.head_dim) for each in layers]
            self._caches = [
                MLXCache(width, dtype, max_tokens, self._device) for width in widths
            ]
        return [*self._caches]

    def vectors(self, values: F32) -> mx.array:
        """Copy vectors to the device; see ``contract.Decoder``."""
        with mx.stream(self._device):
            return mx.array(values)

    def steer(
        self, hidden: mx.array, vectors: mx.array, which: Ints | None
    ) -> mx.array:
        """Add a vector to every row; see ``contract.Decoder``."""
        with mx.stream(self._device):
            return hidden + (vectors[0] if which is None else vectors[indices(which)])

    def moves(self, moves: Moves[F32]) -> Moves[mx.array]:
        """Copy moves to the device; see ``contract.Decoder``."""
        with mx.stream(self._device):
            return bring_moves(moves)

    def move(
        self, hidden: mx.array, moves: Moves[mx.array], which: Ints | None
    ) -> mx.array:
        """Move every row along a direction; see ``contract.Decoder``."""
        with mx.stream(self._device):
            return move(hidden, moves, None if which is None else indices(which))

    @contextmanager
    def block(self, layer: int) -> Iterator[MLXBlock]:
        """Open a block; see ``contract.Decoder``."""
        self._layer = layer
        block = self._next.pop(layer, None)
        self._next.clear()
        yield self._weights.block(layer, keep=self._keep) if block is None else block

    def bring_rotary(self, tables: RotaryTables[F32]) -> RotaryTables[mx.array]:
        """Copy the tables to the device, once for all blocks."""
        with mx.stream(self._device):
            scale = tables.query_scale
            # As ``attention.rotate`` takes them: for both halves of a head.
            sin = np.stack([-tables.sin, tables.sin], axis=1)
            return RotaryTables(
                cos=mx.array(tables.cos[:, None, None]),
                sin=mx.array(sin[:, None]),
                query_scale=None if scale is None else mx.array(scale),
            )

    def bring_attention(self, attention: Attention[Ints]) -> Attention[mx.array]:
        """Copy the indices to the device, once for all blocks."""
        with mx.stream(self._device):
            return bring_attention(attention)

    def bring_following(self, following: NextTokens[Any]) -> NextTokens[mx.array]:
        """Copy the indices to the device, once for all blocks."""
        with mx.stream(self._device):
            return bring_following(following)

    def bring_entering(self, entering: Entering[Ints]) -> Entering[mx.array]:
        """Copy the indices to the device, once for all blocks."""
        with mx.stream(self._device):
            return bring_entering(entering)

    def rows(self, hidden: mx.array, rows: Ints) -> F32:
        """Finish the pending work and copy rows out as f32."""
        with mx.stream(self._device):
            read = hidden[indices(rows)]
        self._finish(hidden, read)
        return np.array(read)

    def materialize(self, hidden: mx.array, *points: mx.array) -> None:
        """Finish the pending work on a stream, and what a cache took of it."""
        cache = self._caches[self._layer : self._layer + 1]
        held = (array for each in cache for array in each.held)
        self._finish(hidden, *points, *held)

    def close(self) -> None:
        """Let go of what is this run's; see ``contract.Decoder``."""
        self._next, self._head, self._caches = {}, None, []
        buffer_cache.let_go()
        try:
            # Nor is a limit to be changed while the device works.
            wait_for(self._device)
        finally:
            if self._wires:
                wired_memory.let_go()

    def _wired_bytes(self, num_tokens: int) -> int:
        """Count what stays through the run, and what comes and goes with each token."""
        width = self._weights.dtype.size
        return model_bytes(self.spec, width, num_tokens) + CACHE_BYTES

    def _finish(self, *arrays: mx.array) -> None:
        """Evaluate, and read the next block off the disk while the device works."""
        with device_failures():
            mx.async_eval(*arrays)  # type: ignore[no-untyped-call] # mlx has no types
            following = self._layer + 1
            if following not in self._next and self._weights.has_block(following):
                self._next[following] = self._weights.block(following, keep=self._keep)
            mx.eval(*arrays)


def _rounded(values: F32, dtype: mx.Dtype) -> mx.array:
    return mx.array(values).astype(dtype).astype(mx.float32)


def _conforms(weights: MLXWeights, decoder: MLXDecoder) -> tuple[Weights, Decoder[Any]]:
    """Hold this module to the contract, in the type checker."""
    return weights, decoder
