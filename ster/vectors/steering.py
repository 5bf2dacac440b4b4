"""Steering vectors: a direction for each layer, with where it comes from.

A vector is a value: arithmetic makes new ones, and nothing is switched on or off.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from ster.documents.steering import (
    artifact_header,
    check_layers,
    open_artifact,
    read_artifact,
)
from ster.errors import DirectionError, DocumentError, LayerError
from ster.html import to_html
from ster.layers import abridge
from ster.text import to_float
from ster.vectors.cards import vector_card
from ster.vectors.checks import (
    check_metadata,
    check_numbers,
    check_same_space,
    is_number,
)
from ster.vectors.geometry import Geometry, directions_of
from ster.vectors.norms import merge_norms, read_norms, scale_rows, take_norms
from ster.vectors.origins import common, joined, read_scale, spell_scale, spell_term
from ster.vectors.strengths import Strength, StrengthLike, take_strength

F32 = npt.NDArray[np.float32]


class Origin(TypedDict, total=False):
    """What else is known of where directions come from; see ``SteeringVector``."""

    model_revision: str | None
    precision: str | None
    chat_template: str | None
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SteeringVector(Geometry):
    """Directions in a model's residual stream, one for each of some layers.

    ``vector * 4.0``, ``-vector`` and ``one + other`` are vectors too. Their metadata
    say how they were made; the training numbers stay those of the fitted directions,
    and a sum has none (zeros).

    Args:
        layers: Block indices, ascending.
        array: The directions, f32, (num_layers, hidden_size); of length 1 as fitted.
        model: The model as it was named.
        model_revision: The revision it was read at, None where there is none.
        precision: That of the run that read it, None where that is not known.
        chat_template: How its prompts were encoded: applied, absent or off.
        trait_name: What it points towards.
        method: How it was fitted: caa, pca or logistic.
        train_margin: The mean margin of each layer on the pairs it was fitted on.
        train_accuracy: The share of these pairs that each layer orders.
        metadata: Anything more, as strings.
        source: The file that it was read from, for sentences; no part of the document.

    Raises:
        DocumentError: The parts do not fit together, or a value is not finite.

    Example:
        >>> import numpy as np
        >>> from ster import SteeringVector
        >>> calm = SteeringVector(
        ...     layers=(1,), array=np.ones((1, 4), "f4"), model="toy",
        ...     trait_name="calm", method="caa",
        ... )
        >>> calm * 2
        SteeringVector('calm', caa, layer 1, model='toy', hidden_size=4, scale=2)
    """

    layers: tuple[int, ...]
    array: F32
    model: str
    model_revision: str | None = None
    precision: str | None = None
    chat_template: str | None = None
    trait_name: str
    method: str
    train_margin: tuple[float, ...] = ()
    train_accuracy: tuple[float, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    source: str | None = None
    # Without this, np.float64(2) * vector would be taken for an array of objects.
    __array_ufunc__: ClassVar[None] = None

    def __post_init__(self) -> None:
        """Check once that the parts fit together."""
        if not self.layers:
            raise DocumentError("artifact has no steering vectors")
        if self.array.dtype != np.float32 or self.array.ndim != 2:
            raise DocumentError("directions must be float32 (num_layers, hidden_size)")
        if len(self.array) != len(self.layers) or not self.array.size:
            raise DocumentError("directions must be one for each layer")
        if list(self.layers) != sorted(set(self.layers)):
            raise DocumentError("layers of a steering vector must ascend")
        if not np.isfinite(self.array).all():
            raise DocumentError("a steering vector holds a value that is not finite")
        check_metadata(self.metadata)
        for name in ("train_margin", "train_accuracy"):
            numbers = getattr(self, name) or (0.0,) * len(self.layers)
            checked = check_numbers(name, numbers, len(self.layers))
            object.__setattr__(self, name, checked)

    @classmethod
    def of(
        cls,
        array: npt.ArrayLike,
        *,
        layers: int | Iterable[int],
        model: str,
        trait_name: str = "",
        method: str = "given",
        unit: bool = False,
        **origin: Unpack[Origin],
    ) -> SteeringVector:
        """Make a vector of directions that something else has fitted, such as a probe.

        Args:
            array: (num_layers, hidden_size), or (hidden_size,) for one layer; numpy,
                torch, lists, ``probe.coef_`` of scikit-learn.
            layers: The block index of each row: an index, or indices in any order.
            model: The model as it was named, ``runtime.model``.
            trait_name: What the directions point towards.
            method: How they were fitted.
            unit: Scale each direction to length 1, as fitted ones are. Else a strength
                counts in lengths of what is given.
            **origin: ``model_revision``, ``precision``, ``chat_template`` and
                ``metadata``, as for the class.

        Raises:
            DocumentError: As for the class.
            LayerError: A layer is no block index.
            DirectionError: A direction of no length is to be scaled.

        Example:
            >>> from ster import SteeringVector
            >>> SteeringVector.of([[3.0, 4.0]], layers=2, model="toy", unit=True)
            SteeringVector('', given, layer 2, model='toy', hidden_size=2)
        """
        indices, directions = directions_of(array, layers, unit=unit)
        return cls(
            layers=indices,
            array=directions,
            model=model,
            trait_name=trait_name,
            method=method,
            **origin,
        )

    @property
    def hidden_size(self) -> int:
        """The width of the residual stream."""
        return int(self.array.shape[1])

    def direction(self, layer: int) -> F32:
        """Look at one layer's direction, (hidden_size,), without copying it.

        Raises:
            LayerError: The vector has no such layer.
        """
        if layer not in self.layers:
            there = abridge(self.layers)
            raise LayerError(
                f"the vector has no layer {layer}; there are {there}",
                layer=layer,
                expected=self.layers,
            )
        view: F32 = self.array[self.layers.index(layer)]
        return view

    @property
    def scale(self) -> Strength | None:
        """What the directions were multiplied by since they were fitted."""
        return read_scale(self.metadata)

    @property
    def residual_norms(self) -> tuple[float, ...] | None:
        """The stream's mean length at each layer, over the rows it was fitted on."""
        return read_norms(self.metadata, len(self.layers))

    def with_norms(self, norms: Iterable[float]) -> SteeringVector:
        """Set the stream's mean length at each layer, which ``0.05n`` counts in.

        Raises:
            DirectionError: They are not one length for each layer.
        """
        noted = take_norms(norms, len(self.layers))
        return replace(self, metadata={**self.metadata, **noted})

    def at(self, strength: StrengthLike) -> SteeringVector:
        """Scale by a number, as ``*`` does, or by shares of each layer's own norm.

        Args:
            strength: ``"0.05n"`` makes a direction of length 1 as long as 0.05 of the
                residual norm of its layer.

        Raises:
            UsageError: It is no strength, or in norms of what is in norms already.
            DirectionError: It is not finite, or the vector has no residual norms.
        """
        return self._scaled(take_strength(strength))

    def _scaled(self, strength: Strength) -> SteeringVector:
        scale = (self.scale or Strength(value=1.0)) * strength
        array = scale_rows(self.array, strength, self.residual_norms)
        noted = {**self.metadata, "scale": spell_scale(scale)}
        return replace(self, array=array, metadata=noted)

    def __repr__(self) -> str:
        """Show what it is and where it comes from, not the numbers."""
        parts = [
            repr(self.trait_name),
            self.method,
            f"layer{'s' * (len(self.layers) > 1)} {abridge(self.layers)}",
            f"model={self.model!r}",
            f"hidden_size={self.hidden_size}",
        ]
        if "pair_count" in self.metadata:
            parts.append(f"{self.metadata['pair_count']} pairs")
        if self.scale is not None:
            parts.append(f"scale={spell_scale(self.scale)}")
        return f"SteeringVector({', '.join(parts)})"

    def _repr_html_(self) -> str:
        return to_html(vector_card(self))

    def __mul__(self, strength: float) -> SteeringVector:
        """Scale the directions; the metadata keep their origin and note the scale."""
        if not is_number(strength):
            return NotImplemented
        factor = to_float(strength)
        if not math.isfinite(factor):
            sentence = f"a strength must be finite, not {factor}"
            raise DirectionError(sentence, field="strength", found=strength)
        return self._scaled(Strength(value=factor))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> SteeringVector:
        """Scale the directions by one over a number."""
        if not is_number(divisor):
            return NotImplemented
        number = to_float(divisor)
        if not number or not math.isfinite(1 / number):
            sentence = f"a strength cannot be divided by {number:g}"
            raise DirectionError(sentence, field="strength", found=divisor)
        return self * (1 / number)

    def __neg__(self) -> SteeringVector:
        """Point the other way."""
        return self * -1.0

    def __add__(self, other: SteeringVector) -> SteeringVector:
        """Add layer by layer; a layer that only one has is taken as it is.

        Raises:
            DirectionError: They are of different models or hidden sizes.
        """
        if not isinstance(other, SteeringVector):
            return NotImplemented
        check_same_space(self, other)
        layers = tuple(sorted({*self.layers, *other.layers}))
        array = np.zeros((len(layers), self.hidden_size), np.float32)
        for vector in (self, other):
            array[[layers.index(layer) for layer in vector.layers]] += vector.array
        norms = merge_norms(
            layers, [(each.layers, each.residual_norms) for each in (self, other)]
        )
        return SteeringVector(
            layers=layers,
            array=array,
            model=self.model,
            model_revision=common(self.model_revision, other.model_revision),
            precision=common(self.precision, other.precision),
            chat_template=common(self.chat_template, other.chat_template),
            trait_name=joined(self.trait_name, other.trait_name),
            method=joined(self.method, other.method),
            metadata={"sum": f"{self._term} + {other._term}", **norms},
        )

    @property
    def _term(self) -> str:
        return spell_term(self.trait_name, self.method, self.metadata)

    def __radd__(self, start: object) -> SteeringVector:
        """Let ``sum(vectors)`` begin with its 0."""
        return self if type(start) is int and start == 0 else NotImplemented

    def __sub__(self, other: SteeringVector) -> SteeringVector:
        """Subtract layer by layer, as ``self + -other``."""
        if not isinstance(other, SteeringVector):
            return NotImplemented
        return self + -other

    @property
    def document(self) -> dict[str, object]:
        """The artifact, its keys in their order."""
        optional = {"precision": self.precision, "chat_template": self.chat_template}
        numbers = zip(
            self.layers, self.array, self.train_margin, self.train_accuracy, strict=True
        )
        return {
            **artifact_header(),
            "model": self.model,
            "model_revision": self.model_revision,
            **{key: word for key, word in optional.items() if word is not None},
            "trait_name": self.trait_name,
            "method": self.method,
            "hidden_size": self.hidden_size,
            "vectors": [
                {
                    "layer": layer,
                    "values": np.ascontiguousarray(values),
                    "train_margin": margin,
                    "train_accuracy": accuracy,
                }
                for layer, values, margin, accuracy in numbers
            ],
            "metadata": dict(self.metadata),
        }

    @property
    def summary(self) -> dict[str, object]:
        """The artifact without its values, which ``inspect`` shows."""
        numbers = zip(
            self.layers,
            self.norms(),
            self.train_margin,
            self.train_accuracy,
            strict=True,
        )
        summary = {**self.document, "precision": self.precision}
        del summary["vectors"]
        return {
            **summary,
            "chat_template": self.chat_template,
            "layers": [
                {
                    "layer": layer,
                    "norm": float(norm),
                    "width": self.hidden_size,
                    "train_margin": margin,
                    "train_accuracy": accuracy,
                }
                for layer, norm, margin, accuracy in numbers
            ],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a steering artifact, the whole document or nothing.

        Raises:
            DocumentError: A direction is all zeros, and could not be read again.
            OutputError: It cannot be written.
        """
        check_layers(self.layers, self.array)
        with open_artifact(path) as write:
            write(self.document)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SteeringVector:
        """Read a steering artifact, every value as the f32 that was written.

        Raises:
            DocumentError: It cannot be read, or is no artifact that can steer.
        """
        return cls(**read_artifact(path))
