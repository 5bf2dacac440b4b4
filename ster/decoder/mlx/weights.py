"""What is held of a checkpoint on a GPU: its tensors, and blocks that stay."""

from __future__ import annotations

import threading

import mlx.core as mx

from ster.architecture import parts
from ster.architecture.spec import LayerSpec, ModelSpec
from ster.decoder.held import HeldWeights
from ster.decoder.mlx.attention import SelfAttention
from ster.decoder.mlx.block import MLXBlock
from ster.decoder.mlx.experts import (
    Experts,
)
from ster.decoder.mlx.footprint import (
    block_bytes,
    embedding_bytes,
    head_bytes,
)
from ster.decoder.mlx.parts import (
    MLP,
    AnyNorm,
    SingleLinear,
)
from ster.decoder.mlx.reader import WeightReader

Head = tuple[AnyNorm, SingleLinear]


class MLXWeights(HeldWeights[MLXBlock, Head]):
    """The weights of a checkpoint on a GPU; see ``contract.Weights``.

    Args:
        model: What the decoder is.
        dtype: The width of weights, of the inputs of products, and of keys and values.
        device: Where everything runs.
    """

    def __init__(self, model: ModelSpec, dtype: mx.Dtype, device: mx.Device) -> None:
        super().__init__(model)
        self.dtype = dtype
        self.device = device
        self._making = threading.Lock()  # threads may share a runtime
        self._table: SingleLinear | None = None

    @property
    def held_bytes(self) -> int:
        """Return the memory of what stays; see ``contract.Weights``."""
        width = self.dtype.size
        layers = (self.model.layers[index] for index in self._blocks)
        blocks = sum(block_bytes(self.model, each, width) for each in layers)
        head = head_bytes(self.model) if self._head else 0
        table = 0 if self._table is None else embedding_bytes(self.model, width)
        return blocks + head + table

    def has_block(self, layer: int) -> bool:
        """Tell whether the run has a block, from its output projection."""
        if layer >= len(self.model.layers):
            return False
        block = self.model.layers[layer]
        places = block.attention.o_proj.places
        return any(block.prefix + each.weight_name in self._tensors for each in places)

    def block(self, layer: int, *, keep: bool) -> MLXBlock:
        """Take the block that stayed, or copy its weights to the device."""
        with self._making:
            if layer in self._blocks:
                return self._blocks[layer]
            block = self._make_block(self.model.layers[layer])
            if keep:
                self._blocks[layer] = block
            return block

    def head(self, *, keep: bool) -> Head:
        """Take final norm and head if they stayed, or copy them to the device."""
        with self._making:
            if self._head is not None:
                return self._head
            reader = WeightReader(self._tensors, "", self.dtype)
            with mx.stream(self.device):
                norm = reader.norm(self.model.final_norm)
                head = norm, reader.wide(self.model.output)
            reader.finish()
            if keep:
                self._head = head
            return head

    def table(self, *, keep: bool) -> SingleLinear:
        """Take the embedding on the device, which may be the head, or copy it there."""
        if self.model.head is None:
            return self.head(keep=keep)[1]
        with self._making:
            if self._table is None:
                reader = WeightReader(self._tensors, "", self.dtype)
                with mx.stream(self.device):
                    self._table = reader.single(self.model.embedding)
                reader.finish()
            return self._table

    def release(self) -> None:
        """Let go of what stays; see ``contract.Weights``."""
        super().release()
        self._table = None

    def _make_block(self, block: LayerSpec) -> MLXBlock:
        reader = WeightReader(self._tensors, block.prefix, self.dtype)
        with mx.stream(self.device):
            made = MLXBlock(
                spec=block,
                attention_norm=reader.optional_norm(block.attention_norm),
                self_attn=_make_attention(block.attention, reader),
                attention_out_norm=reader.optional_norm(block.attention_out_norm),
                feed_forward_norm=reader.optional_norm(block.feed_forward_norm),
                mlp=_make_feed_forward(block.feed_forward, reader),
                feed_forward_out_norm=reader.optional_norm(block.feed_forward_out_norm),
                dtype=self.dtype,
                device=self.device,
            )
        reader.finish()
        return made


def _make_attention(attention: parts.Attention, reader: WeightReader) -> SelfAttention:
    return SelfAttention(
        spec=attention,
        qkv_proj=reader.linear(attention.q_proj, attention.k_proj, attention.v_proj),
        o_proj=reader.linear(attention.o_proj),
        q_norm=reader.optional_norm(attention.q_norm),
        k_norm=reader.optional_norm(attention.k_norm),
        sinks=reader.optional_values(attention.sinks),
    )


def _make_feed_forward(
    made: parts.FeedForward | parts.Experts, reader: WeightReader
) -> MLP | Experts:
    if isinstance(made, parts.FeedForward):
        return _make_mlp(made, reader)
    experts, gate, shared = made.experts, made.shared_gate, made.shared
    return Experts(
        spec=made,
        router=reader.wide(made.router, reader.dtype),
        activation=experts[0].activation,
        gate_proj=reader.stacked([each.inner[0] for each in experts]),
        up_proj=reader.stacked([each.up_proj for each in experts]),
        down_proj=reader.stacked([each.down_proj for each in experts]),
        shared=None if shared is None else _make_mlp(shared, reader),
        shared_gate=None if gate is None else reader.linear(gate),
    )


def _make_mlp(feed_forward: parts.FeedForward, reader: WeightReader) -> MLP:
    return MLP(
        activation=feed_forward.activation,
        gated=feed_forward.gate_proj is not None,
        up_proj=reader.linear(*feed_forward.inner),
        down_proj=reader.linear(feed_forward.down_proj),
    )
