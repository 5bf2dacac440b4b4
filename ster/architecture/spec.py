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
from typing import Protocol

from ster.architecture.modules import Matrix, Norm, Shapes
from ster.architecture.rotary import DynamicRope, LongRope, QueryScaling, RopeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotary:
    """How queries and keys are turned by their positions.

    Args:
        scaling: Theta, and what becomes of the frequencies.
        dim: Channels of a head that turn, in halves, from the first on.
        query_scaling: Multiplies queries, if anything does.
    """

    scaling: RopeConfig
    dim: int
    query_scaling: QueryScaling | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Grouped-query self-attention.

    Args:
        num_heads: Query heads.
        num_key_value_heads: Key and value heads; divides the query heads.
        head_dim: Width of one head.
        scale: Multiplies the scores.
        softcap: Scores become softcap · tanh(score / softcap).
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
    softcap: float | None = None
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

    @property
    def shapes(self) -> Shapes:
        """List its tensors."""
        parts = (self.q_proj, self.k_proj, self.v_proj, self.q_norm, self.k_norm)
        return _shapes_of(*parts, self.o_proj)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """down(act(gate(x)) · up(x)), or down(act(up(x))) without a gate.

    Args:
        activation: ``silu``, ``gelu`` (by the error function) or ``gelu_tanh``.
        gate_proj: None where there is no gate.
    """

    activation: str
    gate_proj: Matrix | None
    up_proj: Matrix
    down_proj: Matrix

    @property
    def intermediate_size(self) -> int:
        """The width of what down takes."""
        return self.down_proj.inputs

    @property
    def inner(self) -> tuple[Matrix, ...]:
        """Gate, if there is one, and up, which read the same input."""
        gate = () if self.gate_proj is None else (self.gate_proj,)
        return (*gate, self.up_proj)

    @property
    def widest(self) -> int:
        """The width of gate and up together."""
        return sum(each.outputs for each in self.inner)

    @property
    def shapes(self) -> Shapes:
        """List its tensors."""
        return _shapes_of(self.gate_proj, self.up_proj, self.down_proj)


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """One block: h += m · out_norm(attention(norm(h))), then the feed-forward part so.

    Args:
        prefix: What the names of its tensors begin with, such as ``layers.3.``.
        attention_norm: Before attention; a norm that is None leaves its input as it is.
        attention_out_norm: After it, before the sum.
        feed_forward_norm: Before the feed-forward part.
        feed_forward_out_norm: After it, before the sum.
        residual_multiplier: The m.
        parallel: Both parts read the same h, and both sums are one.
    """

    prefix: str
    attention: Attention
    feed_forward: FeedForward
    attention_norm: Norm | None = None
    attention_out_norm: Norm | None = None
    feed_forward_norm: Norm | None = None
    feed_forward_out_norm: Norm | None = None
    residual_multiplier: float = 1.0
    parallel: bool = False

    @cached_property
    def shapes(self) -> Shapes:
        """List its tensors, by their names within the block."""
        return _shapes_of(
            self.attention_norm,
            self.attention,
            self.attention_out_norm,
            self.feed_forward_norm,
            self.feed_forward,
            self.feed_forward_out_norm,
        )

    @property
    def num_values(self) -> int:
        """Count the values of its tensors."""
        return sum(map(math.prod, self.shapes.values()))


def _constant_until(scaling: RopeConfig) -> int | None:
    if isinstance(scaling, DynamicRope):
        return scaling.max_position_embeddings
    if isinstance(scaling, LongRope):
        return scaling.original_max_position_embeddings
    return None


class _HasShapes(Protocol):
    @property
    def shapes(self) -> Shapes: ...


def _shapes_of(*parts: _HasShapes | None) -> Shapes:
    """Merge the tensors of parts; those that share one name it alike."""
    shapes: Shapes = {}
    for part in parts:
        shapes |= {} if part is None else part.shapes
    return shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """How a family's files name what the spec names.

    Args:
        prefixes: What may stand in front of every name but the head's; the first that a
            file has is taken. A model saved without its head often has none.
        ignored: Ends of names of tensors that hold nothing of the model, such as the
            rotary frequencies that old files carry along.
    """

    prefixes: tuple[str, ...] = ("model.", "")
    ignored: tuple[str, ...] = ("rotary_emb.inv_freq",)

    def spelled(self, names: Iterable[str]) -> list[str]:
        """List all that tensors may be called in a file, for its index to choose."""
        # A head has the name of a wrapper before it, if there is one.
        fronts = {*self.prefixes, ""}
        fronts |= {front.removesuffix("model.") for front in fronts}
        return [front + name for name in names for front in sorted(fronts)]


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
        positions: Learned positions, added to the embedding's rows, if there are any.
        logit_scale: Multiplies the logits.
        naming: How the files name the tensors.
        logit_softcap: Then they become softcap · tanh(logit / softcap).
    """

    model_type: str
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int
    layers: tuple[LayerSpec, ...]
    embedding: Matrix
    final_norm: Norm
    head: Matrix | None = None
    positions: Matrix | None = None
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    logit_softcap: float | None = None
    naming: Naming = Naming()

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
        same residuals. Only two scalings tell long prompts apart.
        """
        if self._told_apart_from is None or num_tokens <= self._told_apart_from:
            return 0
        return num_tokens if self._is_dynamic else self._told_apart_from + 1

    def reading_length(self, num_tokens: int, new_tokens: int) -> int:
        """Tell how many tokens are read at once at most while a text grows.

        Where longrope takes its other factors, the text is read anew from its start, as
        transformers does, since the keys before were turned by the first ones.
        """
        grown = range(num_tokens + 1, num_tokens + new_tokens + 1)
        return max((n for n in self._read_anew_at if n in grown), default=num_tokens)

    @cached_property
    def _read_anew_at(self) -> frozenset[int]:
        rotaries = (each.attention.rotary for each in self.layers)
        scalings = {rotary.scaling for rotary in rotaries if rotary is not None}
        return frozenset(
            each.original_max_position_embeddings + 1
            for each in scalings
            if isinstance(each, LongRope)
        )

    @cached_property
    def _is_dynamic(self) -> bool:
        rotaries = (each.attention.rotary for each in self.layers)
        return any(isinstance(each.scaling, DynamicRope) for each in rotaries if each)

    @cached_property
    def _told_apart_from(self) -> int | None:
        """Find the length up to which all prompts have the same frequencies."""
        rotaries = (each.attention.rotary for each in self.layers)
        scalings = [rotary.scaling for rotary in rotaries if rotary is not None]
        lengths = [_constant_until(scaling) for scaling in scalings]
        return min((each for each in lengths if each is not None), default=None)

    def shapes(self, layers: Iterable[int], *, head: bool) -> Shapes:
        """List the tensors that a run reads.

        Args:
            layers: The blocks that run.
            head: Final norm and head are used as well.
        """
        shapes = _shapes_of(self.embedding, self.positions)
        for index in layers:
            layer = self.layers[index]
            shapes |= {layer.prefix + n: shape for n, shape in layer.shapes.items()}
        if head:
            shapes |= self.final_norm.shapes | self.output.shapes
        return shapes
