"""What is held of a checkpoint on a GPU: mapped tensors, and blocks that stay."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import mlx.core as mx

from ster.architecture.modules import Matrix, Norm
from ster.architecture.spec import Attention, FeedForward, LayerSpec, ModelSpec
from ster.checkpoint.weights import StoredTensor
from ster.decoder.mlx.attention import SelfAttention
from ster.decoder.mlx.block import MLXBlock
from ster.decoder.mlx.parts import MLP, AnyNorm, LayerNorm, Linear, RMSNorm
from ster.errors import CapacityError, DeviceError

Head = tuple[AnyNorm, Linear]


class MLXWeights:
    """The weights of a checkpoint on a GPU; see ``contract.Weights``.

    Args:
        model: What the decoder is.
        dtype: The width of weights and stream.
        device: Where everything runs.
    """

    def __init__(self, model: ModelSpec, dtype: mx.Dtype, device: mx.Device) -> None:
        self.model = model
        self.dtype = dtype
        self.device = device
        self._tensors: dict[str, StoredTensor] = {}
        self._blocks: dict[int, MLXBlock] = {}
        self._head: Head | None = None
        self._making = threading.Lock()  # threads may share a runtime

    @property
    def names(self) -> Collection[str]:
        """Return the names of its tensors."""
        return self._tensors.keys()

    @property
    def held_bytes(self) -> int:
        """Return the memory of what stays; see ``contract.Weights``."""
        width = self.dtype.size
        blocks = sum(width * self.model.layers[i].num_values for i in self._blocks)
        return blocks + (head_bytes(self.model, width) if self._head else 0)

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

    def has_block(self, layer: int) -> bool:
        """Tell whether the run has a block, from its first tensor."""
        if layer >= len(self.model.layers):
            return False
        block = self.model.layers[layer]
        return block.prefix + next(iter(block.shapes)) in self._tensors

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
                head = norm, reader.linear(self.model.output)
            reader.finish()
            if keep:
                self._head = head
            return head

    def _make_block(self, block: LayerSpec) -> MLXBlock:
        reader = WeightReader(self._tensors, block.prefix, self.dtype)
        with mx.stream(self.device):
            made = MLXBlock(
                spec=block,
                attention_norm=reader.optional_norm(block.attention_norm),
                self_attn=_make_attention(block.attention, reader),
                attention_out_norm=reader.optional_norm(block.attention_out_norm),
                feed_forward_norm=reader.optional_norm(block.feed_forward_norm),
                mlp=_make_mlp(block.feed_forward, reader),
                feed_forward_out_norm=reader.optional_norm(block.feed_forward_out_norm),
                device=self.device,
            )
        reader.finish()
        return made


def _make_attention(attention: Attention, reader: WeightReader) -> SelfAttention:
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


def head_bytes(model: ModelSpec, width: int) -> int:
    """Count final norm and head at the width that they are held in."""
    return (width * model.vocab_size + 4) * model.hidden_size


@dataclass(frozen=True, slots=True)
class WeightReader:
    """Reads weights of one place onto the GPU, rounded to the run's precision."""

    tensors: Mapping[str, StoredTensor]
    prefix: str
    dtype: mx.Dtype
    # All that was read, to be evaluated.
    made: list[mx.array] = field(default_factory=list)

    def optional_norm(self, norm: Norm | None) -> AnyNorm | None:
        """Read a norm, if there is one."""
        return None if norm is None else self.norm(norm)

    def norm(self, norm: Norm) -> AnyNorm:
        """Read a norm; an offset joins its weight."""
        weight = self.vector(f"{norm.name}.weight")
        if norm.offset:
            weight = self._note(weight + norm.offset)
        if norm.pairs is not None:
            weight = self._note(weight[mx.array(norm.order)])
        if not norm.centred:
            return RMSNorm(weight=weight, eps=norm.eps)
        bias = self.vector(f"{norm.name}.bias") if norm.bias else None
        return LayerNorm(weight=weight, bias=bias, eps=norm.eps)

    def linear(self, *matrices: Matrix) -> Linear:
        """Read matrices, stacked into one; either all of them have a bias or none."""
        weights = [self._matrix(each) for each in matrices]
        biases = [self._bias(each) for each in matrices if each.bias]
        return Linear(
            weight=self._note(mx.concatenate(weights)),
            bias=self._note(mx.concatenate(biases)) if biases else None,
        )

    def vector(self, name: str) -> mx.array:
        """Read a tensor of one axis, rounded but kept wide: it is small."""
        return self._note(self._read(name).astype(mx.float32))

    def _matrix(self, matrix: Matrix) -> mx.array:
        weight = self._read(matrix.weight_name)
        weight = weight.T if matrix.transposed else weight
        return weight if matrix.keeps_order else weight[mx.array(matrix.rows)]

    def _bias(self, matrix: Matrix) -> mx.array:
        bias = self._read(matrix.bias_name).astype(mx.float32)
        return bias if matrix.keeps_order else bias[mx.array(matrix.rows)]

    def finish(self) -> None:
        """Evaluate: else weights stay as stored, and belong to this thread's stream."""
        with device_failures():
            mx.eval(self.made)

    def _note(self, array: mx.array) -> mx.array:
        self.made.append(array)
        return array

    def _read(self, name: str) -> mx.array:
        """Copy a tensor to the device as it is stored, and convert it there."""
        stored = self.tensors[self.prefix + name]
        with device_failures():
            array = mx.array(stored.read())
        stored.release()
        if stored.dtype == "BF16":
            array = array.view(mx.bfloat16)
        return array.astype(self.dtype)


@contextmanager
def device_failures() -> Iterator[None]:
    """Turn what MLX raises where a command fails into a refusal.

    Raises:
        CapacityError: There was no memory for it.
        DeviceError: It failed for another reason.
    """
    try:
        yield
    except RuntimeError as error:
        words = str(error).lower()
        if "allocate" in words or "out of memory" in words or "malloc" in words:
            sentence = "the device has no memory left for this run"
            way = "allow less with --memory, so that the run is cut smaller"
            raise CapacityError(sentence, error, way) from error
        raise DeviceError("the device failed while it computed", error) from error
