"""A checkpoint on Metal or CUDA: opens its blocks for ``decoder.mlx.block``.

Read it beside ``decoder.numpy.decoder``: the same parts in the same order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

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
from ster.decoder.devices import not_built
from ster.decoder.mlx.block import (
    MAX_GATHERED,
    MAX_SCORES,
    MLP,
    Linear,
    MLXBlock,
    MLXCache,
    RMSNorm,
    SelfAttention,
)
from ster.errors import DeviceError
from ster.stream.attention import MIN_QUERIES, Attention, AttentionBatch
from ster.stream.packing import Ints
from ster.stream.rotary import RotaryTables

DTYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
# Packing and positions, for a token.
INDEX_BYTES = 128
# A key and its position in attention's lists, and while they are made.
KEY_BYTES = 24
# Freed buffers that MLX keeps for reuse; prompts of many lengths would pile them up.
CACHE_BYTES = 1 << 28


def check_available(device: str) -> None:
    """Refuse a device that this MLX does not have, or whose driver does not start.

    Raises:
        DeviceError: It is not to be had.
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


def device_memory() -> int:
    """Return how much memory the device lets a process use, as far as it says."""
    has_gpu = mx.metal.is_available() or mx.cuda.is_available()
    known = mx.device_info(mx.gpu if has_gpu else mx.cpu)
    # On CUDA what is free now: others may have taken some.
    sizes = ("max_recommended_working_set_size", "free_memory", "memory_size")
    return next((int(known[name]) for name in sizes if name in known), 2**62)


def footprint(
    config: DecoderConfig, *, precision: str, longest_prompt: int
) -> Footprint:
    """Count what a decoder takes; see ``contract.Footprint``."""
    width = DTYPES[precision].size
    values = block_values(config)
    projected = config.query_size + 2 * config.key_value_size
    stream = 3 * config.hidden_size + 3 * projected + 3 * config.query_size
    scores = max(MAX_SCORES, MIN_QUERIES * longest_prompt * config.num_attention_heads)
    gathered = max(MAX_GATHERED, longest_prompt * config.key_value_size)
    return Footprint(
        block_bytes=width * values,
        # As stored, at the run's width, stacked, and widened for the products; and the
        # next block as stored.
        open_bytes=(2 * width + 12) * values,
        token_bytes=4 * (stream + 4 * config.intermediate_size) + INDEX_BYTES,
        row_bytes=4 * config.hidden_size,
        key_bytes=KEY_BYTES,
        # Keys and values of a batch, gathered, widened and laid out for the kernel, and
        # those of the batch before: seven times, as measured.
        fixed_bytes=4 * (2 * scores + 7 * 2 * gathered) + CACHE_BYTES,
    )


def open_decoder(
    config: DecoderConfig,
    tensors: Mapping[str, StoredTensor],
    *,
    device: str,
    precision: str,
    resident: bool,
) -> MLXDecoder:
    """Make a decoder; its blocks are opened when they are needed."""
    return MLXDecoder(
        config,
        tensors,
        DTYPES[precision],
        mx.Device(mx.cpu if device == "mlx-cpu" else mx.gpu),
        resident=resident,
    )


class MLXDecoder:
    """The blocks of a checkpoint on a GPU.

    Args:
        config: What the decoder is.
        tensors: The mapped tensors, by the names of ``checkpoint.tensors``.
        dtype: The width of the weights and of the stream.
        device: Where everything runs.
        resident: Keep every block's weights once they are made.
    """

    def __init__(
        self,
        config: DecoderConfig,
        tensors: Mapping[str, StoredTensor],
        dtype: mx.Dtype,
        device: mx.Device,
        *,
        resident: bool,
    ) -> None:
        self.config = config
        self._tensors = tensors
        self._layers = group_by_layer(tensors)
        self._dtype = dtype
        self._device = device
        self._resident = resident
        # Blocks that are open: all where they are resident, else this and the next.
        self._blocks: dict[int, MLXBlock] = {}
        self._layer = 0
        self._opening = threading.Lock()  # threads may share a runtime
        mx.set_cache_limit(CACHE_BYTES)

    @property
    def max_attention_pairs(self) -> int:
        """Return how many query-key pairs one attention batch may hold."""
        return MAX_SCORES // self.config.num_attention_heads

    @property
    def max_attention_keys(self) -> int:
        """Return how many keys one attention batch may gather."""
        return MAX_GATHERED // self.config.key_value_size

    def embed(self, token_ids: Ints) -> mx.array:
        """Gather embedding rows; see ``contract.Decoder``."""
        embedding = self._tensors[EMBEDDING]
        with mx.stream(self._device):
            rows = mx.array(embedding.take(token_ids)).astype(self._dtype)
        if not self._resident:
            embedding.release()
        return rows

    @property
    def resident(self) -> bool:
        """Tell whether blocks stay once they have been opened."""
        return self._resident

    def take(self, hidden: mx.array, rows: Ints) -> mx.array:
        """Take some rows of a stream."""
        with mx.stream(self._device):
            return hidden[_indices(rows)]

    def unembed(self, hidden: mx.array) -> NDArray[np.float32]:
        """Apply final norm and head; see ``contract.Decoder``."""
        with mx.stream(self._device):
            norm, head = self._head
            logits = head(norm(hidden.astype(mx.float32)))
        mx.eval(logits)
        return np.array(logits)

    @cached_property
    def _head(self) -> tuple[RMSNorm, Linear]:
        weights = BlockWeights(self._tensors, self._dtype)
        head = EMBEDDING if self.config.tie_word_embeddings else HEAD
        norm = RMSNorm(weight=weights.vector(NORM), eps=self.config.rms_norm_eps)
        linear = Linear(weight=weights.read(head), bias=None)
        mx.eval(norm.weight, linear.weight)  # as for a block
        return norm, linear

    def make_caches(self) -> list[Cache[mx.array]]:
        """Make an empty cache for every layer."""
        width = self.config.num_key_value_heads, self.config.head_dim
        with mx.stream(self._device):
            layers = range(self.config.num_hidden_layers)
            return [MLXCache(width, self._dtype) for _ in layers]

    def vector(self, values: NDArray[np.float32]) -> mx.array:
        """Copy a vector to the device; see ``contract.Decoder``."""
        with mx.stream(self._device):
            return mx.array(values).astype(self._dtype)

    def steer(self, hidden: mx.array, vector: mx.array) -> mx.array:
        """Add a vector to every row; see ``contract.Decoder``."""
        with mx.stream(self._device):
            return hidden + vector

    @contextmanager
    def block(self, layer: int) -> Iterator[MLXBlock]:
        """Open a block; see ``contract.Decoder``."""
        self._layer = layer
        self._open(layer)
        try:
            yield self._blocks[layer]
        finally:
            if not self._resident:
                del self._blocks[layer]

    def wave(self, rotary: RotaryTables, attention: Attention[Ints]) -> Wave[mx.array]:
        """Copy what belongs to a stream to the device, once for all blocks."""
        with mx.stream(self._device):
            rows = attention.rows
            return Wave(
                cos=mx.array(rotary.cos),
                sin=mx.array(rotary.sin),
                attention=Attention(
                    rows=None if rows is None else _indices(rows),
                    batches=tuple(map(_to_device, attention.batches)),
                    order=_indices(attention.order),
                    window=attention.window,
                ),
            )

    def rows(self, hidden: mx.array, rows: Ints) -> NDArray[np.float32]:
        """Finish the pending work and copy rows out as f32."""
        with mx.stream(self._device):
            read = hidden[_indices(rows)].astype(mx.float32)
        self._finish(hidden, read)
        return np.array(read)

    def materialize(self, hidden: mx.array) -> None:
        """Finish the pending work on a stream."""
        self._finish(hidden)

    def rest(self) -> None:
        """Do nothing: MLX keeps buffers of its own, and ``CACHE_BYTES`` bounds them."""

    def _finish(self, *arrays: mx.array) -> None:
        """Evaluate, and read the next block off the disk while the device works."""
        mx.async_eval(*arrays)  # type: ignore[no-untyped-call] # mlx has no types here
        self._open(self._layer + 1)
        mx.eval(*arrays)

    def _open(self, layer: int) -> None:
        """Copy a block's weights to the device, if the run has that block."""
        with self._opening:
            if layer not in self._layers or layer in self._blocks:
                return
            weights = BlockWeights(self._layers[layer], self._dtype)
            with mx.stream(self._device):
                block = self._make_block(weights)
            # Else they stay as stored, and belong to this thread's stream.
            mx.eval(weights.made)
            self._blocks[layer] = block

    def _make_block(self, weights: BlockWeights) -> MLXBlock:
        def norm(name: str) -> RMSNorm:
            weight = weights.vector(f"{name}.weight")
            return RMSNorm(weight=weight, eps=self.config.rms_norm_eps)

        qk_norm = self.config.qk_norm
        return MLXBlock(
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
            device=self._device,
        )


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """Reads weights: mapped, rounded to the run's precision, on the device."""

    tensors: Mapping[str, StoredTensor]
    dtype: mx.Dtype
    # All that was read, to be evaluated.
    made: list[mx.array] = field(default_factory=list)

    def vector(self, name: str) -> mx.array:
        """Read a bias or a norm's weight, rounded but kept wide: it is small."""
        return self._note(self.read(name).astype(mx.float32))

    def linear(self, part: str, *names: str) -> Linear:
        """Read projections, stacked into one."""
        biases = [f"{part}.{name}.bias" for name in names]
        weights = [self.read(f"{part}.{name}.weight") for name in names]
        return Linear(
            weight=self._note(mx.concatenate(weights)),
            bias=self._note(mx.concatenate([self.vector(bias) for bias in biases]))
            if biases[0] in self.tensors
            else None,
        )

    def _note(self, array: mx.array) -> mx.array:
        self.made.append(array)
        return array

    def read(self, name: str) -> mx.array:
        """Copy a tensor to the device as it is stored, and convert it there."""
        stored = self.tensors[name]
        array = mx.array(stored.data)
        stored.release()
        if stored.dtype == "BF16":
            array = array.view(mx.bfloat16)
        return array.astype(self.dtype)


def _to_device(batch: AttentionBatch[Ints]) -> AttentionBatch[mx.array]:
    return AttentionBatch(
        queries=_indices(batch.queries),
        keys=None if batch.keys is None else _indices(batch.keys),
        query_positions=_indices(batch.query_positions),
        key_positions=_indices(batch.key_positions),
    )


def _indices(values: Ints) -> mx.array:
    return mx.array(values.astype(np.int32))


def _conforms(decoder: MLXDecoder) -> Decoder[Any]:
    """Hold this module to the contract, in the type checker."""
    return decoder
