"""Lengths, angles and projections of directions: what needs their numbers alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ster.documents.activations.value import Activations
from ster.errors import DirectionError, DocumentError, LayerError, UsageError
from ster.layers import name_layers
from ster.text import quoted
from ster.vectors.comparable import SAME_LAYERS
from ster.vectors.metrics import score_rows
from ster.vectors.origins import is_same_model

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


class Reader(Protocol):
    """What reads texts: a ``Runtime``."""

    def activations(
        self, prompts: Iterable[str], layers: tuple[int, ...]
    ) -> Activations:
        """Read the residual stream of prompts after these layers."""


class Geometry:
    """The part of a steering vector that compares it with others and with rows.

    Attributes:
        layers: Block indices, ascending.
        array: The directions, f32, (num_layers, hidden_size), of any length.
        model: The model as it was named.
    """

    __slots__ = ()

    layers: tuple[int, ...]
    array: F32
    model: str

    def norms(self) -> F64:
        """Return the length of each direction, (num_layers,)."""
        lengths: F64 = np.linalg.norm(self.array.astype(np.float64), axis=1)
        return lengths

    def cosine(self, other: Geometry) -> dict[int, float]:
        """Compare with another vector, layer by layer.

        Args:
            other: A vector of the same hidden size. It may be of another model: a chat
                model is often compared with the one that it was made from.

        Returns:
            The cosine similarity at each layer that both have.

        Raises:
            DirectionError: The hidden sizes differ, there is no common layer, or a
                direction is all zeros.
        """
        given: object = other
        if not isinstance(given, Geometry):
            sentence = f"other must be a SteeringVector, not {type(given).__name__}"
            raise UsageError(sentence, field="other", found=given)
        common = sorted({*self.layers} & {*other.layers})
        if not common:
            raise DirectionError(
                "the vectors have no layer in common",
                f"one has {name_layers(self.layers)}, the other "
                f"{name_layers(other.layers)}",
                SAME_LAYERS,
                found=other.layers,
                expected=self.layers,
            )
        return {
            layer: _cosine(
                self.array[self.layers.index(layer)],
                other.array[other.layers.index(layer)],
            )
            for layer in common
        }

    def project(
        self, rows: Activations | Iterable[str], runtime: Reader | None = None
    ) -> F64:
        """Measure how far rows lie along the directions, each scaled to length 1.

        The scalar product with the unit direction, in the units of the residual stream:
        it does not change when the vector is multiplied by a positive number.
        ``activations @ vector`` takes the direction as long as it is, as margins do;
        for a fitted vector, whose length is 1, the two agree.

        Args:
            rows: Activations that have the vector's layers, or texts.
            runtime: What reads the texts, at the token that it reads by default.

        Returns:
            (num_rows, num_layers) of this vector.

        Raises:
            LayerError: The activations lack a layer of the vector.
            DirectionError: A direction is all zeros, or the hidden sizes differ.
            SterError: The texts are refused, or there is nothing to read them.
        """
        norms = self.norms()
        if not norms.all():
            layer = self.layers[int((norms == 0).argmax())]
            sentence = f"the direction at layer {layer} is all zeros"
            raise DirectionError(sentence, layer=layer)
        if not isinstance(rows, Activations):
            if isinstance(rows, np.ndarray) and rows.dtype.kind not in "OUST":
                raise UsageError(
                    f"rows must be Activations or texts, not {type(rows).__name__} of "
                    f"{rows.dtype}",
                    "array @ vector.direction(layer) projects rows of one layer",
                    field="rows",
                    expected="Activations or texts",
                )
            if not isinstance(rows, Iterable):
                raise UsageError(
                    f"rows must be Activations or texts, not {type(rows).__name__}",
                    field="rows",
                    found=rows,
                    expected="Activations or texts",
                )
            if runtime is None:
                raise UsageError(
                    "texts need a runtime that reads them",
                    "vector.project(texts, runtime), or vector.project(activations)",
                    field="runtime",
                )
            rows = runtime.activations(rows, self.layers)
        scores: F64 = self._scores(rows) / norms
        return scores

    def __rmatmul__(self, rows: Activations) -> F64:
        """Score rows as margins do: ``activations @ vector``.

        Layers are matched by their block index, and sums are of f64.

        Returns:
            The scalar product of every row with its layer's direction, (num_rows,
            num_layers) of this vector.

        Raises:
            LayerError: The activations lack a layer of the vector.
            DirectionError: The hidden sizes differ.
            DocumentError: They are of different models.
        """
        if not isinstance(rows, Activations):
            return NotImplemented
        return self._scores(rows)

    def _scores(self, rows: Activations) -> F64:
        if not is_same_model(rows.model, self.model):
            raise DocumentError(
                f"activations of model {quoted(rows.model)} have no place along "
                f"directions of model {quoted(self.model)}",
                "dataclasses.replace(vector, model=activations.model) says they do",
                field="model",
                found=self.model,
                expected=rows.model,
            )
        missing = [layer for layer in self.layers if layer not in rows.layers]
        if missing:
            raise LayerError(
                f"layer {missing[0]} of the vector was not read, only "
                f"{name_layers(rows.layers)}",
                "vector.take_layers([...]) makes a vector of some of its layers",
                layer=missing[0],
                expected=rows.layers,
            )
        # A view of one layer at a time, for the rows may be many.
        columns = [
            score_rows(rows.layer(layer)[:, None], direction[None])
            for layer, direction in zip(self.layers, self.array, strict=True)
        ]
        return np.concatenate(columns, axis=1)


def directions_of(
    array: ArrayLike, layers: int | Iterable[int], *, unit: bool
) -> tuple[tuple[int, ...], F32]:
    """Take directions as other libraries hold them.

    Args:
        array: (num_layers, hidden_size), or (hidden_size,) of one layer.
        layers: The block index of each row, in any order.
        unit: Scale each direction to length 1.

    Returns:
        The layers, ascending, and their directions in f32.

    Raises:
        DocumentError: The parts do not fit together.
        LayerError: A layer is no block index.
        DirectionError: A direction of no length is to be scaled.
    """
    given: Any = array
    try:
        table = np.asarray(given)
    except ValueError as error:
        raise DocumentError("directions must be numbers", error) from error
    if table.dtype.kind not in "fiu":
        raise DocumentError(
            f"directions must be numbers, not {table.dtype}", field="array"
        )
    table = np.atleast_2d(table).astype(np.float64)
    indices = [layers] if not isinstance(layers, Iterable) else [*layers]
    checked = _check_layers(indices)
    if table.ndim != 2 or len(table) != len(checked):
        raise DocumentError(
            "directions must be one for each layer: their shape is "
            f"{np.shape(given)}, the layers are {', '.join(map(str, checked))}",
            field="array",
            found=np.shape(given),
        )
    if unit:
        table = _scale(table)
    order = sorted(range(len(checked)), key=checked.__getitem__)
    with np.errstate(over="ignore"):  # what overflows is refused as not finite
        array32 = table[order].astype(np.float32)
    return tuple(checked[each] for each in order), array32


def _check_layers(layers: list[Any]) -> list[int]:
    for layer in layers:
        whole = isinstance(layer, int | np.integer) and not isinstance(layer, bool)
        if not whole or layer < 0:
            sentence = f"invalid layer {quoted(str(layer))}"
            raise LayerError(sentence, field="layers", found=layer)
    return [int(layer) for layer in layers]


def _scale(table: F64) -> F64:
    norms = np.linalg.norm(table, axis=1, keepdims=True)
    if not (np.isfinite(norms) & (norms > 0)).all():
        raise DirectionError("a direction of no length cannot be scaled to length 1")
    scaled: F64 = table / norms
    return scaled


def _cosine(one: F32, other: F32) -> float:
    if one.shape != other.shape or not one.size:
        raise DirectionError(
            "cosine similarity requires equal non-empty vectors",
            found=len(other),
            expected=len(one),
        )
    first, second = one.astype(np.float64), other.astype(np.float64)
    lengths = np.linalg.norm(first) * np.linalg.norm(second)
    if not lengths:
        raise DirectionError("cosine similarity is undefined for a zero vector")
    return float(np.clip(first @ second / lengths, -1.0, 1.0))
