"""What a decoder is, as a value: the page to read before a family's or a decoder's.

A family turns config.json into a ``ModelSpec``; everything else follows from it. The
tensors that a checkpoint must hold, those that have no place in it, the bytes of a
block and what both decoders compute are read off the spec, so a new family is one file.

Names are the checkpoint's own, without the ``model.`` that may stand in front. A
layer's are relative to its prefix.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ster.architecture.modules import (
    Matrix,
    Module,
    Norm,
    Shapes,
    count_values,
    present,
    shapes_of,
)
from ster.architecture.parts import Attention, Experts, FeedForward
from ster.architecture.quantization import Format, Quantization
from ster.architecture.rotary import DynamicRope, LongRope, RopeConfig

# A module, and what stands before its name: its block's prefix, or nothing.
Placed = tuple[str, Module]


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
    feed_forward: FeedForward | Experts
    attention_norm: Norm | None = None
    attention_out_norm: Norm | None = None
    feed_forward_norm: Norm | None = None
    feed_forward_out_norm: Norm | None = None
    residual_multiplier: float = 1.0
    parallel: bool = False

    @cached_property
    def modules(self) -> tuple[Module, ...]:
        """List what it is made of; names are those within the block."""
        return present(
            self.attention_norm,
            *self.attention.modules,
            self.attention_out_norm,
            self.feed_forward_norm,
            *self.feed_forward.modules,
            self.feed_forward_out_norm,
        )

    @cached_property
    def common(self) -> tuple[Module, ...]:
        """List what serves every token: all but experts that are chosen."""
        made = self.feed_forward
        if not isinstance(made, Experts):
            return self.modules
        chosen = {each for one in made.experts for each in one.modules}
        return tuple(each for each in self.modules if each not in chosen)

    @cached_property
    def shapes(self) -> Shapes:
        """List its tensors, by their names within the block, as they are published."""
        return shapes_of(self.modules)

    @cached_property
    def num_values(self) -> int:
        """Count the values of its tensors."""
        return sum(map(math.prod, self.shapes.values()))

    @cached_property
    def num_expert_values(self) -> int:
        """Count the values of one of its experts; none where it has none."""
        if not isinstance(self.feed_forward, Experts):
            return 0
        return count_values(self.feed_forward.experts[0].modules)

    @property
    def num_experts(self) -> int:
        """Count its experts."""
        made = self.feed_forward
        return len(made.experts) if isinstance(made, Experts) else 0


def _constant_until(scaling: RopeConfig) -> int | None:
    if isinstance(scaling, DynamicRope):
        return scaling.max_position_embeddings
    if isinstance(scaling, LongRope):
        return scaling.original_max_position_embeddings
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """How a family's files name what the spec names.

    Args:
        prefixes: What may stand in front of every name but the head's; the first that a
            file has is taken. A model saved without its head often has none.
        ignored: Ends of names of tensors that hold nothing of the model, such as the
            rotary frequencies that old files carry along.
        blocks: By prefix, what blocks are called behind it, where that is another word
            than the spec's ``layers.``.
    """

    prefixes: tuple[str, ...] = ("model.", "")
    ignored: tuple[str, ...] = ("rotary_emb.inv_freq",)
    blocks: Mapping[str, str] = field(default_factory=dict)

    def with_prefix(self, prefix: str, name: str) -> str:
        """Put a prefix before a name, whose block may be called otherwise behind it."""
        word = self.blocks.get(prefix)
        if word is not None and name.startswith("layers."):
            return f"{prefix}{word}{name.removeprefix('layers.')}"
        return prefix + name

    def without_prefix(self, prefix: str, name: str) -> str:
        """Take a prefix off a file's name; see ``with_prefix``."""
        name, word = name.removeprefix(prefix), self.blocks.get(prefix)
        if word is not None and name.startswith(word):
            return f"layers.{name.removeprefix(word)}"
        return name

    def spelled(self, modules: Iterable[Placed]) -> Iterator[str]:
        """List all that tensors may be called in a file, for its index to choose."""
        fronts = self.fronts
        for prefix, module in modules:
            for place in module.places:
                for name in (*place.shapes, *_companions(place)):
                    named = prefix + name
                    yield from (self.with_prefix(front, named) for front in fronts)

    @property
    def fronts(self) -> tuple[str, ...]:
        """List what may stand before any name."""
        # A head has the name of a wrapper before it, if there is one.
        heads = [each.removesuffix("model.") for each in self.prefixes]
        return tuple(dict.fromkeys([*self.prefixes, *heads, ""]))


def _companions(module: Module) -> tuple[str, ...]:
    """Name the tensors that stand beside a quantized weight."""
    if not isinstance(module, Matrix):
        return ()
    return (
        module.scales_name,
        f"{module.name}.biases",
        f"{module.weight_name}_scale_inv",
    )


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
        quantization: How matrices may be quantized, if any are.
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
    quantization: Quantization | None = None

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

    @cached_property
    def attention_kinds(self) -> tuple[int, ...]:
        """Number the layers' kinds of attention: those that turn and see alike."""
        each = [
            (layer.attention.rotary, layer.attention.window) for layer in self.layers
        ]
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(each))}
        return tuple(numbers[kind] for kind in each)

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

    def modules(self, layers: Iterable[int], *, head: bool) -> list[Placed]:
        """List the modules whose tensors a run reads.

        Args:
            layers: The blocks that run.
            head: Final norm and head are used as well.
        """
        listed: list[Placed] = [
            ("", each) for each in present(self.embedding, self.positions)
        ]
        for index in layers:
            layer = self.layers[index]
            listed += [(layer.prefix, each) for each in layer.modules]
        if head:
            listed += [("", self.final_norm), ("", self.output)]
        return listed

    @cached_property
    def _own_formats(self) -> dict[str, Format | None]:
        """List the modules that have a format of their own, by the spec's names."""
        overrides = {} if self.quantization is None else self.quantization.overrides
        formats: dict[str, Format | None] = {}
        # Where a path may be read in two ways, the first prefix counts.
        for front in reversed(self.naming.fronts):
            for path, packing in overrides.items():
                name = self.naming.without_prefix(front, path)
                if self.naming.with_prefix(front, name) == path:
                    formats[name] = packing
        return formats

    def format_of(self, prefix: str, matrix: Matrix) -> Format | None:
        """Tell how a matrix is quantized, as far as config.json says it."""
        declared = self.quantization
        if declared is None or declared.default is None:
            return None
        for place in matrix.places if self._own_formats else ():
            if prefix + place.name in self._own_formats:
                return self._own_formats[prefix + place.name]
        has_blocks = any(each.suffixes.weight == "_blocks" for each in matrix.places)
        if declared.blocks_only and not has_blocks:
            return None
        whole = matrix.inputs % declared.default.group_size == 0
        return declared.default if whole or declared.default.mode == "fp8" else None
