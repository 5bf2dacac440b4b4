"""Vectors scaled and added: values of which others are made, nothing is switched on."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ster.errors import DirectionError, UsageError
from ster.text import quoted, to_float
from ster.vectors.checks import check_same_space, is_number
from ster.vectors.norms import merge_norms, read_norms, scale_rows, take_norms
from ster.vectors.origins import (
    common,
    joined,
    joined_traits,
    read_scale,
    spell_scale,
    spell_term,
)
from ster.vectors.strengths import Strength, StrengthLike, take_strength

F32 = NDArray[np.float32]


def refuse_words(strength: object) -> None:
    """Refuse a strength that is spelled, which ``at`` takes.

    Raises:
        UsageError: It is a string.
    """
    if isinstance(strength, str):
        raise UsageError(
            f"a vector is multiplied by a number, not {quoted(strength)}",
            'vector.at("0.05n") takes a strength as it is spelled',
            field="strength",
            found=strength,
            expected="a number",
        )


class Arithmetic:
    """The part of a steering vector that scales it and adds it to others.

    The attributes are those of ``SteeringVector``.
    """

    __slots__ = ()

    layers: tuple[int, ...]
    array: F32
    model: str
    model_revision: str | None
    precision: str | None
    chat_template: str | None
    trait_name: str
    method: str
    metadata: Mapping[str, str]

    @property
    @abstractmethod
    def hidden_size(self) -> int:
        """The width of the residual stream."""

    @abstractmethod
    def replaced(self, **parts: Any) -> Self:
        """Make a vector of this one's parts and some others."""

    @property
    def scale(self) -> Strength | None:
        """What the directions were multiplied by since they were fitted."""
        return read_scale(self.metadata)

    @property
    def residual_norms(self) -> tuple[float, ...] | None:
        """The stream's mean length at each layer, over the rows it was fitted on."""
        return read_norms(self.metadata, len(self.layers))

    def with_norms(self, norms: Iterable[float]) -> Self:
        """Set the stream's mean length at each layer, which ``0.05n`` counts in.

        Raises:
            DirectionError: They are not one length for each layer.
        """
        noted = take_norms(norms, len(self.layers))
        return self.replaced(metadata={**self.metadata, **noted})

    def at(self, strength: StrengthLike) -> Self:
        """Scale by a number, as ``*`` does, or by shares of each layer's own norm.

        Args:
            strength: ``"0.05n"`` makes a direction of length 1 as long as 0.05 of the
                residual norm of its layer.

        Raises:
            UsageError: It is no strength, or in norms of what is in norms already.
            DirectionError: It is not finite, or the vector has no residual norms.
        """
        return self._scaled(take_strength(strength))

    def _scaled(self, strength: Strength) -> Self:
        scale = (self.scale or Strength(value=1.0)) * strength
        array = scale_rows(self.array, strength, self.residual_norms)
        noted = {**self.metadata, "scale": spell_scale(scale)}
        return self.replaced(array=array, metadata=noted)

    def __mul__(self, strength: float) -> Self:
        """Scale the directions; the metadata keep their origin and note the scale."""
        refuse_words(strength)
        if not is_number(strength):
            return NotImplemented
        factor = to_float(strength)
        if not math.isfinite(factor):
            sentence = f"a strength must be finite, not {factor}"
            raise DirectionError(sentence, field="strength", found=strength)
        return self._scaled(Strength(value=factor))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Self:
        """Scale the directions by one over a number."""
        refuse_words(divisor)
        if not is_number(divisor):
            return NotImplemented
        number = to_float(divisor)
        if not number or not math.isfinite(1 / number):
            sentence = f"a strength cannot be divided by {number:g}"
            raise DirectionError(sentence, field="strength", found=divisor)
        return self * (1 / number)

    def __neg__(self) -> Self:
        """Point the other way."""
        return self * -1.0

    def __add__(self, other: Self) -> Self:
        """Add layer by layer; a layer that only one has is taken as it is.

        Raises:
            DirectionError: They are of different models or hidden sizes.
        """
        if not isinstance(other, Arithmetic):
            return NotImplemented
        check_same_space(self, other)
        layers = tuple(sorted({*self.layers, *other.layers}))
        array = np.zeros((len(layers), self.hidden_size), np.float32)
        for vector in (self, other):
            array[[layers.index(layer) for layer in vector.layers]] += vector.array
        norms = merge_norms(
            layers, [(each.layers, each.residual_norms) for each in (self, other)]
        )
        return self.replaced(
            layers=layers,
            array=array,
            model_revision=common(self.model_revision, other.model_revision),
            precision=common(self.precision, other.precision),
            chat_template=common(self.chat_template, other.chat_template),
            trait_name=joined_traits(
                self.trait_name, self.metadata, other.trait_name, other.metadata
            ),
            method=joined(self.method, other.method),
            metadata={"sum": f"{self._term} + {other._term}", **norms},
            train_margin=(),
            train_accuracy=(),
            source=None,
        )

    @property
    def _term(self) -> str:
        return spell_term(self.trait_name, self.method, self.metadata)

    def __radd__(self, start: object) -> Self:
        """Let ``sum(vectors)`` begin with its 0."""
        return self if type(start) is int and start == 0 else NotImplemented

    def __sub__(self, other: Self) -> Self:
        """Subtract layer by layer, as ``self + -other``."""
        if not isinstance(other, Arithmetic):
            return NotImplemented
        return self + -other
