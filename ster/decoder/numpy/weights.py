"""What is held of a checkpoint on the cpu: its tensors, and blocks that stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ster.architecture import parts
from ster.architecture.modules import Matrix, Norm, Values
from ster.architecture.spec import LayerSpec, ModelSpec
from ster.checkpoint.matrices import StoredMatrix, stored_matrix
from ster.checkpoint.stored import Stored
from ster.decoder.held import HeldWeights
from ster.decoder.numpy.attention import SelfAttention
from ster.decoder.numpy.block import NumpyBlock
from ster.decoder.numpy.experts import Experts
from ster.decoder.numpy.parts import (
    F32,
    MLP,
    AnyNorm,
    LayerNorm,
    Linear,
    RMSNorm,
    rounded,
)
from ster.decoder.numpy.scratch import F32_WIDTH, Scratch
from ster.decoder.numpy.threads import Threads, usable_cores

# Values converted at a time: they stay in a core's cache between the two steps.
CONVERTED_VALUES = 1 << 18

# Where matrices of blocks that are opened one after the other are made, by their names.
Room = dict[str, F32]
Head = tuple[AnyNorm, Linear]


class NumpyWeights(HeldWeights[NumpyBlock, Head]):
    """The weights of a checkpoint on the cpu; see ``contract.Weights``.

    Args:
        model: What the decoder is.
        dtype: The width that weights are rounded to: f32 or f16.
    """

    def __init__(self, model: ModelSpec, dtype: np.dtype[Any]) -> None:
        super().__init__(model)
        self.dtype = dtype
        self.threads = Threads()
        self.scratch = Scratch()

    @property
    def held_bytes(self) -> int:
        """Return the memory of what stays; see ``contract.Weights``."""
        blocks = sum(block_bytes(self.model.layers[layer]) for layer in self._blocks)
        return blocks + (head_bytes(self.model) if self._head is not None else 0)

    def block(self, layer: int, *, keep: bool, room: Room) -> NumpyBlock:
        """Take the block that stayed, or make it.

        Args:
            layer: Its index.
            keep: It is to stay.
            room: Where it is made if not; whoever was made there before is spoilt.
        """
        blocks = self._blocks
        if layer in blocks:
            return blocks[layer]
        self._prefetch(layer + 1)
        block = self._make_block(self.model.layers[layer], None if keep else room)
        if keep:
            blocks[layer] = block
        return block

    def head(self, *, keep: bool) -> Head:
        """Take final norm and head if they stayed, or make them."""
        if self._head is not None:
            return self._head
        reader = WeightReader(self._tensors, "", self.dtype, self.threads)
        output = replace(reader.linear(self.model.output), inputs=F32_WIDTH)
        head = reader.norm(self.model.final_norm), output
        if keep:
            self._head = head
        return head

    def _prefetch(self, layer: int) -> None:
        """Wish for a block's bytes; which experts it needs is not known yet."""
        if layer >= len(self.model.layers):
            return
        block = self.model.layers[layer]
        for module in block.common:
            for place in module.places:
                for name in place.shapes:
                    if block.prefix + name in self._tensors:
                        self._tensors[block.prefix + name].prefetch()

    def _make_block(self, block: LayerSpec, room: Room | None) -> NumpyBlock:
        reader = WeightReader(
            self._tensors, block.prefix, self.dtype, self.threads, room
        )
        return NumpyBlock(
            spec=block,
            attention_norm=reader.optional_norm(block.attention_norm),
            self_attn=_make_attention(block.attention, reader),
            attention_out_norm=reader.optional_norm(block.attention_out_norm),
            feed_forward_norm=reader.optional_norm(block.feed_forward_norm),
            mlp=_make_feed_forward(block.feed_forward, reader),
            feed_forward_out_norm=reader.optional_norm(block.feed_forward_out_norm),
            dtype=self.dtype,
            threads=self.threads,
            scratch=self.scratch,
        )


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
    gate, shared = made.shared_gate, made.shared
    return Experts(
        spec=made,
        router=reader.linear(made.router),
        open_expert=partial(_open_expert, made, reader.alone()),
        stay=reader.room is None,
        shared=None if shared is None else _make_mlp(shared, reader, "shared "),
        shared_gate=None if gate is None else reader.linear(gate),
    )


def _open_expert(
    made: parts.Experts, reader: WeightReader, expert: int, room: int
) -> MLP:
    return _make_mlp(made.experts[expert], reader, f"expert {room} ")


def _make_mlp(
    feed_forward: parts.FeedForward, reader: WeightReader, whose: str = ""
) -> MLP:
    return MLP(
        activation=feed_forward.activation,
        gated=feed_forward.gate_proj is not None,
        up_proj=reader.linear(*feed_forward.inner, key=f"{whose}up"),
        down_proj=reader.linear(feed_forward.down_proj, key=f"{whose}down"),
    )


def block_bytes(block: LayerSpec) -> int:
    """Count a block that stays: f32 whatever the precision, as products are."""
    return 4 * block.num_values


def open_bytes(block: LayerSpec) -> int:
    """Count a block that is opened and closed: an expert at a time on each core."""
    expert = block.num_expert_values
    common = block.num_values - block.num_experts * expert
    return 4 * (common + usable_cores() * expert)


def head_bytes(model: ModelSpec) -> int:
    """Count final norm and head, which may be an f32 copy of the embedding."""
    return 4 * (model.vocab_size + 1) * model.hidden_size


@dataclass(frozen=True, slots=True)
class WeightReader:
    """Reads weights of one place: rounded to the run's precision, as f32."""

    tensors: Mapping[str, Stored]
    prefix: str
    dtype: np.dtype[Any]
    threads: Threads | None
    room: Room | None = None

    def optional_norm(self, norm: Norm | None) -> AnyNorm | None:
        """Read a norm, if there is one."""
        return None if norm is None else self.norm(norm)

    def norm(self, norm: Norm) -> AnyNorm:
        """Read a norm; an offset joins its weight."""
        weight = self.vector(f"{norm.name}.weight")
        if norm.offset:
            weight += np.float32(norm.offset)
        if norm.pairs is not None:
            weight = weight[norm.order]
        if not norm.centred:
            return RMSNorm(weight=weight, eps=norm.eps)
        bias = self.vector(f"{norm.name}.bias") if norm.bias else None
        return LayerNorm(weight=weight, bias=bias, eps=norm.eps)

    def linear(self, *matrices: Matrix, key: str | None = None) -> Linear:
        """Read matrices, stacked into one; either all of them have a bias or none.

        Args:
            matrices: What to read.
            key: What the stack is called in the room; by the first one's name if not
                given, which is then the same in all blocks.
        """
        read = [self._matrix(each).read_bias() for each in matrices]
        biases = [rounded(each, self.dtype) for each in read if each is not None]
        return Linear(
            weight=self._stack(matrices, key or matrices[0].name),
            bias=np.concatenate(biases) if biases else None,
            inputs=self.dtype,
        )

    def optional_values(self, values: Values | None) -> F32 | None:
        """Read a tensor, if there is one."""
        return None if values is None else self.vector(values.name)

    def vector(self, name: str) -> F32:
        """Read a small tensor."""
        return rounded(self.tensors[self.prefix + name].as_float32(), self.dtype)

    def alone(self) -> WeightReader:
        """Return one for a thread of the pool: it waits for no other."""
        return replace(self, threads=None)

    def _stack(self, matrices: Sequence[Matrix], key: str) -> F32:
        """Convert matrices into one below another, in pieces on all cores."""
        found = [self._matrix(each) for each in matrices]
        inputs, outputs = matrices[0].inputs, sum(each.outputs for each in matrices)
        stacked = self._room(key, (outputs, inputs))
        pieces: list[tuple[StoredMatrix, NDArray[np.intp], F32]] = []
        row = 0
        for matrix, stored in zip(matrices, found, strict=True):
            step = max(1, CONVERTED_VALUES // inputs)
            if stored.is_transposed:
                step = matrix.outputs  # each piece would read it whole
            for at in range(0, matrix.outputs, step):
                rows = np.arange(at, min(at + step, matrix.outputs))
                out = stacked[row + at : row + at + len(rows)]
                pieces.append((stored, rows, out))
            row += matrix.outputs

        def convert(piece: tuple[StoredMatrix, NDArray[np.intp], F32]) -> None:
            stored, rows, out = piece
            # What a quantized matrix holds is exact, whatever the precision.
            width = np.dtype("f4") if stored.dtype is None else self.dtype
            stored.read_float32(rows, out)
            if width != np.float32:
                out[:] = rounded(out, width)

        if self.threads is None:
            for piece in pieces:
                convert(piece)
        else:
            self.threads.map(convert, pieces)
        return stacked

    def _matrix(self, matrix: Matrix) -> StoredMatrix:
        return stored_matrix(self.tensors, self.prefix, matrix)

    def _room(self, key: str, shape: tuple[int, int]) -> F32:
        """Find a place for a matrix: new, or where the last block's was."""
        if self.room is None:
            return np.empty(shape, np.float32)
        if key not in self.room or self.room[key].shape != shape:
            self.room[key] = np.empty(shape, np.float32)
        return self.room[key]
