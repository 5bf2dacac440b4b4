"""What a decoder is, as a value: the page to read before a family's or a decoder's.

A family turns config.json into a ``ModelSpec``; everything else follows from it. The
tensors that a checkpoint must hold, those that have no place in it, the bytes of a
block and what both decoders compute are read off the spec, so a new family is one file.

Names are the checkpoint's own, without the ``model.`` that may stand in front. A
layer's are relative to its prefix.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ster.architecture.rotary_config import DynamicRope, RopeConfig

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """y = x Wᵀ + b, with W stored as (outputs, inputs).

    Args:
        name: Of the module; its tensors are ``<name>.weight`` and ``<name>.bias``.
        outputs: Width of y.
        inputs: Width of x.
        bias: There is a b.
    """

    name: str
    outputs: int
    inputs: int
    bias: bool = False

    @property
    def num_values(self) -> int:
        """Count the values of its weight."""
        return self.outputs * self.inputs

    @property
    def shapes(self) -> Shapes:
        """List its tensors."""
        shapes: Shapes = {f"{self.name}.weight": (self.outputs, self.inputs)}
        return shapes | ({f"{self.name}.bias": (self.outputs,)} if self.bias else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """x / sqrt(mean(x²) + eps) · w over the last axis (RMSNorm).

    Args:
        name: Of the module; its tensor is ``<name>.weight``.
        size: Width of x.
        eps: Added to the mean square.
    """

    name: str
    size: int
    eps: float

    @property
    def shapes(self) -> Shapes:
        """List its tensors."""
        return {f"{self.name}.weight": (self.size,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotary:
    """How queries and keys are turned by their positions.

    Args:
        scaling: Theta, and what becomes of the frequencies.
        dim: Channels of a head that turn, in halves.
    """

    scaling: RopeConfig
    dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Grouped-query self-attention.

    Args:
        num_heads: Query heads.
        num_key_value_heads: Key and value heads; divides the query heads.
        head_dim: Width of one head.
        scale: Multiplies the scores.
        window: How many tokens a query sees, itself included; None sees all before it.
        rotary: None leaves queries and keys as they are.
        q_norm: Normalises queries before the rotation: each head where its size is
            ``head_dim``, else all heads as one row.
        k_norm: The same for keys.
    """

    q_proj: Matrix
    k_proj: Matrix
    v_proj: Matrix
    o_proj: Matrix
    num_heads: int
    num_key_value_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    rotary: Rotary | None = None
    q_norm: Norm | None = None
    k_norm: Norm | None = None

    @property
    def query_size(self) -> int:
        """The width of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def key_value_size(self) -> int:
        """The width of all key heads together, and of all value heads."""
        return self.num_key_value_heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """down(silu(gate(x)) · up(x))."""

    gate_proj: Matrix
    up_proj: Matrix
    down_proj: Matrix

    @property
    def intermediate_size(self) -> int:
        """The width between gate and down."""
        return self.down_proj.inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One block: h += m · out_norm(attention(norm(h))), then the feed-forward part so.

    Args:
        prefix: What the names of its tensors begin with, such as ``layers.3.``.
        attention_norm: Before attention; a norm that is None leaves its input as it is.
        attention_out_norm: After it, before the sum.
        feed_forward_norm: Before the feed-forward part.
        feed_forward_out_norm: After it, before the sum.
        residual_multiplier: The m.
    """

    prefix: str
    attention: Attention
    feed_forward: FeedForward
    attention_norm: Norm | None = None
    attention_out_norm: Norm | None = None
    feed_forward_norm: Norm | None = None
    feed_forward_out_norm: Norm | None = None
    residual_multiplier: float = 1.0

    @property
    def shapes(self) -> Shapes:
        """List its tensors, by their names within the block."""
        attention, feed_forward = self.attention, self.feed_forward
        parts = (
            self.attention_norm,
            attention.q_proj,
            attention.k_proj,
            attention.v_proj,
            attention.q_norm,
            attention.k_norm,
            attention.o_proj,
            self.attention_out_norm,
            self.feed_forward_norm,
            feed_forward.gate_proj,
            feed_forward.up_proj,
            feed_forward.down_proj,
            self.feed_forward_out_norm,
        )
        shapes: Shapes = {}
        for part in parts:
            shapes |= {} if part is None else part.shapes
        return shapes

    @property
    def num_values(self) -> int:
        """Count the values of its tensors."""
        return sum(map(math.prod, self.shapes.values()))


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A decoder: embedding, blocks, final norm, head.

    Args:
        model_type: What config.json calls the family, to be shown; nothing asks it.
        hidden_size: Width of the residual stream.
        vocab_size: Rows of the embedding.
        max_position_embeddings: Trained length in tokens.
        layers: The blocks.
        embedding: The embedding's module, (vocab_size, hidden_size).
        embedding_scale: Multiplies the embedding's rows.
        final_norm: Between the last block and the head.
        head: None where the embedding is the head as well.
        logit_scale: Multiplies the logits.
    """

    model_type: str
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int
    layers: tuple[LayerSpec, ...]
    embedding: Matrix
    final_norm: Norm
    head: Matrix | None = None
    embedding_scale: float = 1.0
    logit_scale: float = 1.0

    @property
    def num_hidden_layers(self) -> int:
        """The number of blocks."""
        return len(self.layers)

    @property
    def output(self) -> Matrix:
        """The matrix that makes the logits."""
        return self.embedding if self.head is None else self.head

    @cached_property
    def max_heads(self) -> int:
        """The most query heads of a layer."""
        return max((each.attention.num_heads for each in self.layers), default=1)

    @cached_property
    def max_key_value_size(self) -> int:
        """The greatest width of a layer's keys."""
        return max((each.attention.key_value_size for each in self.layers), default=1)

    def rotary_length(self, num_tokens: int) -> int:
        """Tell which rotary frequencies a prompt of so many tokens needs.

        Prompts with equal rotary lengths may share tokens: their common prefix has the
        same residuals. Only dynamic scaling tells long prompts apart.
        """
        if self._dynamic_from is None:
            return 0
        return max(num_tokens, self._dynamic_from)

    @cached_property
    def _dynamic_from(self) -> int | None:
        """Find the length from which on a prompt's own length sets its frequencies."""
        rotaries = (each.attention.rotary for each in self.layers)
        scalings = [rotary.scaling for rotary in rotaries if rotary is not None]
        return min(
            (
                each.max_position_embeddings
                for each in scalings
                if isinstance(each, DynamicRope)
            ),
            default=None,
        )

    def shapes(self, layers: Iterable[int], *, head: bool) -> Shapes:
        """List the tensors that a run reads.

        Args:
            layers: The blocks that run.
            head: Final norm and head are used as well.
        """
        shapes = dict(self.embedding.shapes)
        for index in layers:
            layer = self.layers[index]
            shapes |= {layer.prefix + n: shape for n, shape in layer.shapes.items()}
        if head:
            shapes |= self.final_norm.shapes | self.output.shapes
        return shapes
