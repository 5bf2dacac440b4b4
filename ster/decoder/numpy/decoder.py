"""A checkpoint on the cpu: opens its blocks for ``decoder.numpy.block``.

Read it beside ``decoder.mlx.decoder``: the same parts in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ster.architecture.config import DecoderConfig
from ster.architecture.tensors import (
    EMBEDDING,
    HEAD,
    NORM,
    block_values,
    group_by_layer,
)
from ster.checkpoint.weights import StoredTensor
from ster.decoder.contract import Cache, Decoder, Footprint, Wave
from ster.decoder.numpy.block import (
    ACTIVATED_VALUES,
    F32,
    MAX_GATHERED,
    MAX_SCORES,
    MLP,
    Hidden,
    Linear,
    NumpyBlock,
    NumpyCache,
    RMSNorm,
    SelfAttention,
    slice_rows,
)
from ster.decoder.numpy.scratch import Scratch
from ster.decoder.numpy.threads import Threads, quiet, usable_cores
from ster.stream.attention import MIN_QUERIES, Attention
from ster.stream.packing import Ints
from ster.stream.rotary import RotaryTables

# Packing and positions, for a token.
INDEX_BYTES = 128
# A key and its position in attention's lists, and while they are made.
KEY_BYTES = 24
# Values converted at a time: they stay in a core's cache between the two steps.
CONVERTED_VALUES = 1 << 18


def check_available(device: str) -> None:
    """Refuse nothing: every machine has a cpu."""
    del device


def device_memory() -> int:
    """Return no limit of its own: a run's is the machine's."""
    return 2**62


def footprint(
    config: DecoderConfig, *, precision: str, longest_prompt: int
) -> Footprint:
    """Count what a decoder takes; see ``contract.Footprint``."""
    width = 2 if precision == "f16" else 4
    block = 4 * block_values(config)  # products are f32 whatever the precision
    stream = 2 * config.hidden_size + 2 * config.key_value_size
    wide = config.query_size + 2 * config.head_dim
    projected = config.query_size + 2 * config.key_value_size
    slices = 4 * config.hidden_size + 3 * projected + 2 * config.intermediate_size
    slices = slices * slice_rows(config) + 2 * ACTIVATED_VALUES
    scores = max(MAX_SCORES, MIN_QUERIES * longest_prompt * config.num_attention_heads)
    keys = 2 * max(MAX_GATHERED, longest_prompt * config.key_value_size)
    return Footprint(
        block_bytes=block,
        # The file's own pages may be mapped beside it.
        open_bytes=2 * block,
        token_bytes=width * stream + 4 * wide + INDEX_BYTES,
        row_bytes=4 * config.hidden_size,
        key_bytes=KEY_BYTES,
        fixed_bytes=usable_cores() * 4 * (slices + 3 * scores + keys),
    )


def open_decoder(
    config: DecoderConfig,
    tensors: Mapping[str, StoredTensor],
    *,
    device: str,
    precision: str,
    resident: bool,
) -> NumpyDecoder:
    """Make a decoder; its blocks are opened when they are needed."""
    del device  # there is one
    dtype = np.dtype(np.float16 if precision == "f16" else np.float32)
    return NumpyDecoder(config, tensors, dtype, resident=resident)


class NumpyDecoder:
    """The blocks of a checkpoint on the cpu.

    Args:
        config: What the decoder is.
        tensors: The mapped tensors, by the names of ``checkpoint.tensors``.
        dtype: The width of the weights and of the stream: f32 or f16.
        resident: Keep every block's weights once they are made.
    """

    def __init__(
        self,
        config: DecoderConfig,
        tensors: Mapping[str, StoredTensor],
        dtype: np.dtype[Any],
        *,
        resident: bool,
    ) -> None:
        self.config = config
        self._tensors = tensors
        self._layers = group_by_layer(tensors)
        self._dtype = dtype
        self._threads = Threads()
        self._scratch = Scratch()
        self._resident: dict[int, NumpyBlock] | None = {} if resident else None
        # One block is open at a time, so the next may be made where the last one was.
        self._reused: dict[str, F32] | None = None if resident else {}

    @property
    def max_attention_pairs(self) -> int:
        """Return how many query-key pairs one attention batch may hold."""
        return MAX_SCORES // self.config.num_attention_heads

    @property
    def max_attention_keys(self) -> int:
        """Return how many keys one attention batch may gather."""
        return MAX_GATHERED // self.config.key_value_size

    def embed(self, token_ids: Ints) -> Hidden:
        """Gather embedding rows; see ``contract.Decoder``."""
        embedding = self._tensors[EMBEDDING]
        rows = rounded(embedding.take(token_ids), self._dtype)
        if self._resident is None:
            embedding.release()
        return np.asfortranarray(rows, self._dtype)

    @property
    def resident(self) -> bool:
        """Tell whether blocks stay once they have been opened."""
        return self._resident is not None

    def take(self, hidden: Hidden, rows: Ints) -> Hidden:
        """Take some rows of a stream."""
        return hidden[rows]

    def unembed(self, hidden: Hidden) -> F32:
        """Apply final norm and head; see ``contract.Decoder``."""
        norm, head = self._head
        with quiet():
            return head(norm(hidden.astype(np.float32, copy=False)))

    @cached_property
    def _head(self) -> tuple[RMSNorm, Linear]:
        weights = BlockWeights(self._tensors, self._dtype, self._threads)
        head = EMBEDDING if self.config.tie_word_embeddings else HEAD
        norm = RMSNorm(weight=weights.vector(NORM), eps=self.config.rms_norm_eps)
        return norm, Linear(weight=weights.matrix(head), bias=None)

    def make_caches(self) -> list[Cache[Any]]:
        """Make an empty cache for every layer."""
        width = self.config.num_key_value_heads, self.config.head_dim
        layers = range(self.config.num_hidden_layers)
        return [NumpyCache(width, self._dtype) for _ in layers]

    def vector(self, values: F32) -> Hidden:
        """Round a vector to the stream's width; see ``contract.Decoder``."""
        with quiet():
            return values.astype(self._dtype)

    def steer(self, hidden: Hidden, vector: Hidden) -> Hidden:
        """Add a vector to every row; see ``contract.Decoder``."""
        with quiet():
            hidden += vector
        return hidden

    @contextmanager
    def block(self, layer: int) -> Iterator[NumpyBlock]:
        """Open a block; see ``contract.Decoder``."""
        if self._resident is not None and layer in self._resident:
            yield self._resident[layer]
            return
        tensors = self._layers[layer]
        for tensor in self._layers.get(layer + 1, {}).values():
            tensor.prefetch()
        weights = BlockWeights(tensors, self._dtype, self._threads, self._reused)
        block = self._open(weights)
        if self._resident is not None:
            self._resident[layer] = block
            yield block
            return
        yield block
        for tensor in tensors.values():
            tensor.release()

    def wave(self, rotary: RotaryTables, attention: Attention[Ints]) -> Wave[Any]:
        """Bring what belongs to a stream into memory as the stream lies in it."""
        cos, sin = np.asfortranarray(rotary.cos), np.asfortranarray(rotary.sin)
        return Wave(cos=cos, sin=sin, attention=attention)

    def rows(self, hidden: Hidden, rows: Ints) -> F32:
        """Copy rows out as f32."""
        return self.take(hidden, rows).astype(np.float32, copy=False)

    def materialize(self, hidden: Hidden) -> None:
        """Do nothing: numpy has finished its work."""

    def rest(self) -> None:
        """Let go of what stood between a block's products; see ``contract.Decoder``."""
        self._scratch.clear()

    def _open(self, weights: BlockWeights) -> NumpyBlock:
        def norm(name: str) -> RMSNorm:
            weight = weights.vector(f"{name}.weight")
            return RMSNorm(weight=weight, eps=self.config.rms_norm_eps)

        qk_norm = self.config.qk_norm
        return NumpyBlock(
            config=self.config,
            input_layernorm=norm("input_layernorm"),
            self_attn=SelfAttention(
                config=self.config,
                qkv_proj=weights.linear("self_attn", "q_proj", "k_proj", "v_proj"),
                o_proj=weights.linear("self_attn", "o_proj"),
                q_norm=norm("self_attn.q_norm") if qk_norm else None,
                k_norm=norm("self_attn.k_norm") if qk_norm else None,
            ),
            post_attention_layernorm=norm("post_attention_layernorm"),
            mlp=MLP(
                gate_up_proj=weights.linear("mlp", "gate_proj", "up_proj"),
                down_proj=weights.linear("mlp", "down_proj"),
            ),
            threads=self._threads,
            scratch=self._scratch,
        )


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """Reads weights: mapped, rounded to the run's precision, as f32."""

    tensors: Mapping[str, StoredTensor]
    dtype: np.dtype[Any]
    threads: Threads
    reused: dict[str, F32] | None = None

    def vector(self, name: str) -> F32:
        """Read a bias or a norm's weight."""
        return rounded(self.tensors[name].as_float32().copy(), self.dtype)

    def matrix(self, name: str) -> F32:
        """Read a matrix alone."""
        return self._stack([self.tensors[name]], name)

    def linear(self, part: str, *names: str) -> Linear:
        """Read projections, stacked into one."""
        biases = [f"{part}.{name}.bias" for name in names]
        weights = [self.tensors[f"{part}.{name}.weight"] for name in names]
        return Linear(
            weight=self._stack(weights, biases[0]),
            bias=np.concatenate([self.vector(bias) for bias in biases])
            if biases[0] in self.tensors
            else None,
        )

    def _stack(self, tensors: list[StoredTensor], key: str) -> F32:
        """Convert matrices into one below another, in pieces on all cores."""
        if len(tensors) == 1 and tensors[0].dtype == "F32" and self.dtype == np.float32:
            return tensors[0].as_float32()  # the mapped file itself
        inputs = tensors[0].data.shape[1]
        stacked = self._room(key, (sum(len(t.data) for t in tensors), inputs))
        step = max(1, CONVERTED_VALUES // inputs)
        pieces, row = [], 0
        for tensor in tensors:
            for at in range(0, len(tensor.data), step):
                piece = tensor.part(at, at + step)
                pieces.append((piece, stacked[row + at : row + at + len(piece.data)]))
            row += len(tensor.data)

        def convert(piece: tuple[StoredTensor, F32]) -> None:
            piece[1][:] = rounded(piece[0].as_float32(), self.dtype)

        self.threads.map(convert, pieces)
        for tensor in tensors:
            tensor.release()
        return stacked

    def _room(self, key: str, shape: tuple[int, int]) -> F32:
        """Find room for a matrix: new, or where the last block's was."""
        if self.reused is None:
            return np.empty(shape, np.float32)
        if key not in self.reused:
            self.reused[key] = np.empty(shape, np.float32)
        return self.reused[key]


def rounded(values: F32, dtype: np.dtype[Any]) -> F32:
    """Round to the run's precision; past its range lie infinities, refused later."""
    if dtype == np.float32:
        return values
    with quiet():
        return values.astype(dtype).astype(np.float32)


def _conforms(decoder: NumpyDecoder) -> Decoder[Any]:
    """Hold this module to the contract, in the type checker."""
    return decoder
