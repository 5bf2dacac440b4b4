"""What is held of a checkpoint on the cpu: mapped tensors, and blocks that stay."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ster.architecture import spec
from ster.architecture.modules import Matrix, Norm
from ster.architecture.spec import FeedForward, LayerSpec, ModelSpec
from ster.checkpoint.weights import StoredTensor
from ster.decoder.numpy.attention import SelfAttention
from ster.decoder.numpy.block import NumpyBlock
from ster.decoder.numpy.parts import F32, MLP, AnyNorm, LayerNorm, Linear, RMSNorm
from ster.decoder.numpy.scratch import Scratch
from ster.decoder.numpy.threads import Threads, quiet

# Values converted at a time: they stay in a core's cache between the two steps.
CONVERTED_VALUES = 1 << 18

# Where matrices of blocks that are opened one after the other are made, by their names.
Room = dict[str, F32]
Head = tuple[AnyNorm, Linear]


class NumpyWeights:
    """The weights of a checkpoint on the cpu; see ``contract.Weights``.

    Args:
        model: What the decoder is.
        dtype: The width that weights are rounded to: f32 or f16.
    """

    def __init__(self, model: ModelSpec, dtype: np.dtype[Any]) -> None:
        self.model = model
        self.dtype = dtype
        self.threads = Threads()
        self.scratch = Scratch()
        self._tensors: dict[str, StoredTensor] = {}
        self._blocks: dict[int, NumpyBlock] = {}
        self._head: Head | None = None

    @property
    def names(self) -> Collection[str]:
        """Return the names of its tensors."""
        return self._tensors.keys()

    @property
    def held_bytes(self) -> int:
        """Return the memory of what stays; see ``contract.Weights``."""
        blocks = sum(block_bytes(self.model.layers[layer]) for layer in self._blocks)
        return blocks + (head_bytes(self.model) if self._head is not None else 0)

    def add(self, tensors: Mapping[str, StoredTensor]) -> None:
        """Give it more tensors; see ``contract.Weights``."""
        self._tensors.update(tensors)

    def release(self) -> None:
        """Let go of what stays; see ``contract.Weights``."""
        self._blocks, self._head = {}, None

    def embedding(self) -> StoredTensor:
        """Return the embedding as it is stored."""
        return self._tensors[self.model.embedding.weight_name]

    def positions(self) -> StoredTensor | None:
        """Return the learned positions as they are stored, if there are any."""
        positions = self.model.positions
        return None if positions is None else self._tensors[positions.weight_name]

    def block(self, layer: int, *, keep: bool, room: Room) -> NumpyBlock:
        """Take the block that stayed, or make it.

        Args:
            layer: Its index.
            keep: It is to stay.
            room: Where it is made if not; whoever was made there before is spoilt.
        """
        blocks = self._blocks
        self._check_files(layer)
        if layer in blocks:
            return blocks[layer]
        for tensor in self._stored(layer + 1):
            tensor.prefetch()
        block = self._make_block(self.model.layers[layer], None if keep else room)
        if keep:
            blocks[layer] = block
        return block

    def close_block(self, layer: int) -> None:
        """Let the system take the file's pages of a block that does not stay.

        Raises:
            WeightsError: A file was written to while its values were used.
        """
        self._check_files(layer)
        if layer not in self._blocks:
            for tensor in self._stored(layer):
                tensor.release()

    def head(self, *, keep: bool) -> Head:
        """Take final norm and head if they stayed, or make them."""
        if self._head is not None:
            return self._head
        reader = WeightReader(self._tensors, "", self.dtype, self.threads)
        head = reader.norm(self.model.final_norm), reader.linear(self.model.output)
        if keep:
            self._head = head
        return head

    def _stored(self, layer: int) -> list[StoredTensor]:
        """List the tensors of a block, none of them where it is not to be had."""
        if layer >= len(self.model.layers):
            return []
        block = self.model.layers[layer]
        names = (block.prefix + name for name in block.shapes)
        return [self._tensors[name] for name in names if name in self._tensors]

    def check_head(self) -> None:
        """Hold the files of final norm and head to what they were, as a block's.

        Raises:
            WeightsError: A file was written to while its values were used.
        """
        names = (self.model.final_norm.shapes | self.model.output.shapes).keys()
        _check_unchanged(self._tensors[name] for name in names)

    def _check_files(self, layer: int) -> None:
        """Hold the files to what they were: some matrices are views of them."""
        _check_unchanged(self._stored(layer))

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
            mlp=_make_mlp(block.feed_forward, reader),
            feed_forward_out_norm=reader.optional_norm(block.feed_forward_out_norm),
            threads=self.threads,
            scratch=self.scratch,
        )


def _check_unchanged(tensors: Iterable[StoredTensor]) -> None:
    for file in {id(each.file): each.file for each in tensors}.values():
        file.check_unchanged()


def _make_attention(attention: spec.Attention, reader: WeightReader) -> SelfAttention:
    return SelfAttention(
        spec=attention,
        qkv_proj=reader.linear(attention.q_proj, attention.k_proj, attention.v_proj),
        o_proj=reader.linear(attention.o_proj),
        q_norm=reader.optional_norm(attention.q_norm),
        k_norm=reader.optional_norm(attention.k_norm),
    )


def _make_mlp(feed_forward: FeedForward, reader: WeightReader) -> MLP:
    return MLP(
        activation=feed_forward.activation,
        gated=feed_forward.gate_proj is not None,
        up_proj=reader.linear(*feed_forward.inner),
        down_proj=reader.linear(feed_forward.down_proj),
    )


def block_bytes(block: LayerSpec) -> int:
    """Count a block that stays: f32 whatever the precision, as products are."""
    return 4 * block.num_values


def head_bytes(model: ModelSpec) -> int:
    """Count final norm and head, which may be an f32 copy of the embedding."""
    return 4 * (model.vocab_size + 1) * model.hidden_size


@dataclass(frozen=True, slots=True)
class WeightReader:
    """Reads weights of one place: mapped, rounded to the run's precision, as f32."""

    tensors: Mapping[str, StoredTensor]
    prefix: str
    dtype: np.dtype[Any]
    threads: Threads
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

    def linear(self, *matrices: Matrix) -> Linear:
        """Read matrices, stacked into one; either all of them have a bias or none."""
        biases = [self._bias(each) for each in matrices if each.bias]
        return Linear(
            weight=self._stack(matrices),
            bias=np.concatenate(biases) if biases else None,
        )

    def vector(self, name: str) -> F32:
        """Read a tensor of one axis."""
        return rounded(self._tensor(name).as_float32().copy(), self.dtype)

    def _bias(self, matrix: Matrix) -> F32:
        bias = self.vector(matrix.bias_name)
        return bias if matrix.keeps_order else bias[matrix.rows]

    def _tensor(self, name: str) -> StoredTensor:
        return self.tensors[self.prefix + name]

    def _matrix(self, matrix: Matrix) -> StoredTensor:
        """Find a matrix as (outputs, inputs) of the tensor that it lies in."""
        tensor = self._tensor(matrix.weight_name)
        return tensor.transposed() if matrix.transposed else tensor

    def _stack(self, matrices: Sequence[Matrix]) -> F32:
        """Convert matrices into one below another, in pieces on all cores."""
        first = self._matrix(matrices[0])
        as_is = first.dtype == "F32" and self.dtype == np.float32
        if as_is and len(matrices) == 1 and matrices[0].keeps_order:
            return first.as_float32()  # the mapped file itself
        inputs, outputs = matrices[0].inputs, sum(each.outputs for each in matrices)
        stacked = self._place(matrices[0].name, (outputs, inputs))
        step = max(1, CONVERTED_VALUES // inputs)
        pieces: list[tuple[StoredTensor, NDArray[np.intp], F32]] = []
        row = 0
        for matrix in matrices:
            tensor, rows = self._matrix(matrix), matrix.rows
            for at in range(0, len(rows), step):
                part = rows[at : at + step]
                pieces.append((tensor, part, stacked[row + at : row + at + len(part)]))
            row += len(rows)

        def convert(piece: tuple[StoredTensor, NDArray[np.intp], F32]) -> None:
            tensor, rows, out = piece
            out[:] = rounded(tensor.rows_as_float32(rows), self.dtype)

        self.threads.map(convert, pieces)
        for matrix in matrices:
            self._tensor(matrix.weight_name).release()
        return stacked

    def _place(self, key: str, shape: tuple[int, int]) -> F32:
        """Find a place for a matrix: new, or where the last block's was."""
        if self.room is None:
            return np.empty(shape, np.float32)
        if key not in self.room or self.room[key].shape != shape:
            self.room[key] = np.empty(shape, np.float32)
        return self.room[key]


def rounded(values: F32, dtype: np.dtype[Any]) -> F32:
    """Round to the run's precision; past its range lie infinities, refused later."""
    if dtype == np.float32:
        return values
    with quiet():
        return values.astype(dtype).astype(np.float32)
