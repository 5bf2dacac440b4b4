"""Steering vectors: a direction for each layer, with where it comes from.

A vector is a value: arithmetic makes new ones, and nothing is switched on or off.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from ster.documents.steering import (
    artifact_header,
    check_layers,
    open_artifact,
    read_artifact,
)
from ster.errors import DocumentError, LayerError, require_type, require_whole_number
from ster.html import to_html
from ster.layers import Layers, name_layers
from ster.vectors.arithmetic import Arithmetic
from ster.vectors.cards import vector_card
from ster.vectors.checks import (
    check_metadata,
    check_numbers,
)
from ster.vectors.comparison import Comparison, compare_vectors
from ster.vectors.geometry import Geometry, directions_of
from ster.vectors.origins import spell_scale

F32 = npt.NDArray[np.float32]


class Origin(TypedDict, total=False):
    """What else is known of where directions come from; see ``SteeringVector``."""

    model_revision: str | None
    precision: str | None
    chat_template: str | None
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SteeringVector(Geometry, Arithmetic):
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
        method: How it was fitted: caa, pca, logistic, logreg or pca-uncentred.
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
            UsageError: It is no whole number.
        """
        layer = require_whole_number(layer, "layer")
        if layer not in self.layers:
            raise LayerError(
                f"the vector has no layer {layer}, only {name_layers(self.layers)}",
                layer=layer,
                expected=self.layers,
            )
        view: F32 = self.array[self.layers.index(layer)]
        return view

    def compare(
        self, *others: SteeringVector, clusters: int = 1, layers: Layers = "all"
    ) -> Comparison:
        """Compare with other vectors of the same model: which are alike, which group.

        Args:
            *others: At least one.
            clusters: How many groups to make of all of them.
            layers: Those to compare, which all have; all common ones if not given.

        Returns:
            Cosines, distances, groups, and what of each vector no sum of the others
            makes up; ``ster.plots.similarity`` draws it.

        Raises:
            SterError: The vectors are of different models, or a layer or the number of
                groups is refused.
        """
        for each in others:
            require_type(each, SteeringVector, "other")
        return compare_vectors([self, *others], clusters, layers)

    def take_layers(self, layers: Layers) -> SteeringVector:
        """Take some of its layers: to steer there alone, or to match rows of these.

        Args:
            layers: As for ``runtime.activations``.

        Raises:
            LayerError: The vector lacks one of them.
        """
        # Late: it is made of this.
        from ster.vectors.some_layers import take_layers

        return take_layers(self, layers)

    def replaced(self, **parts: Any) -> SteeringVector:
        """Make a vector of this one's parts and some others."""
        return replace(self, **parts)

    def __repr__(self) -> str:
        """Show what it is and where it comes from, not the numbers."""
        parts = [
            repr(self.trait_name),
            self.method,
            name_layers(self.layers),
            f"model={self.model!r}",
            f"hidden_size={self.hidden_size}",
        ]
        if "pair_count" in self.metadata:
            count = self.metadata["pair_count"]  # a word, which anyone may have written
            parts.append(f"{count} pair{'s' * (count != '1')}")
        if self.scale is not None:
            parts.append(f"scale={spell_scale(self.scale)}")
        return f"SteeringVector({', '.join(parts)})"

    def _repr_html_(self) -> str:
        return to_html(vector_card(self))

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

        Args:
            path: Its suffix says how: ``.json``, ``.safetensors``, ``.npz``, or
                ``.gguf``, a control vector for llama.cpp.

        Raises:
            DocumentError: A direction is all zeros, and could not be read again.
            OutputError: It cannot be written, or the format has no place for a layer.
        """
        check_layers(self.layers, self.array)
        with open_artifact(path, self.layers) as write:
            write(self.document)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SteeringVector:
        """Read a steering artifact, every value as the f32 that was written.

        Args:
            path: Of any format that ``save`` writes. A control vector that another
                program wrote names no model; its method is then ``gguf``.

        Raises:
            DocumentError: It cannot be read, or is no artifact that can steer.
        """
        return cls(**read_artifact(path))
