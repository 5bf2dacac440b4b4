"""Several vectors of one model: how alike they are, and which group together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ster.documents.control_vectors import FOREIGN_METHOD
from ster.errors import DirectionError
from ster.html import to_html
from ster.layers import Layers
from ster.text import quoted
from ster.vectors.comparable import (
    check_numbers,
    check_one_model,
    choose_layers,
    label_vectors,
)
from ster.vectors.grouping import average_linkage, mean_silhouette
from ster.vectors.report_cards import comparison_card, describe_comparison

if TYPE_CHECKING:
    from ster.vectors.steering import SteeringVector

F64 = NDArray[np.float64]

# Directions are f32: what sticks out of the span of others by less is rounding.
_ROUNDING = 10 * float(np.finfo(np.float32).eps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """Two of the vectors that were compared.

    Args:
        a: The label of one.
        b: That of the other.
        cosine: The mean of their cosines over the layers.
    """

    a: str
    b: str
    cosine: float

    @property
    def document(self) -> dict[str, object]:
        """What the report says of it."""
        return {"a": self.a, "b": self.b, "cosine": self.cosine}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Comparison:
    """How alike vectors of one model are.

    Args:
        model: The model of the vectors.
        labels: A name of each: its trait, and its method where traits repeat.
        layers: Those that were compared.
        cosines: Of each two at each layer, (num_layers, num_vectors, num_vectors).
        distance: Of each two, (num_vectors, num_vectors): between directions of length
            1, whichever of both signs is nearer, on average over the layers.
        uniqueness: Of each the share of its length outside the span of the others.
        clusters: The group of each, counted from 0; by average linkage of distances.
        silhouette: How well the groups are apart, at most 1; None where there is one
            group or no group has two members.
    """

    model: str
    labels: tuple[str, ...]
    layers: tuple[int, ...]
    cosines: F64
    distance: F64
    uniqueness: tuple[float, ...]
    clusters: tuple[int, ...]
    silhouette: float | None

    def __repr__(self) -> str:
        """Show the most and the least alike, not the tables."""
        return describe_comparison(self)

    def _repr_html_(self) -> str:
        return to_html(comparison_card(self))

    @property
    def similarity(self) -> F64:
        """The mean of the cosines over the layers, (num_vectors, num_vectors)."""
        mean: F64 = self.cosines.mean(axis=0)
        return mean

    @property
    def most_similar(self) -> Likeness:
        """The two of the highest cosine."""
        return max(self._pairs(), key=lambda each: each.cosine)

    @property
    def most_different(self) -> Likeness:
        """The two of the lowest cosine; below zero they point away from each other."""
        return min(self._pairs(), key=lambda each: each.cosine)

    def _pairs(self) -> list[Likeness]:
        similarity, labels = self.similarity, self.labels
        return [
            Likeness(a=labels[i], b=labels[j], cosine=float(similarity[i, j]))
            for i, j in zip(*np.triu_indices(len(labels), 1), strict=True)
        ]

    @property
    def document(self) -> dict[str, object]:
        """The report."""
        return {
            "clusters": list(self.clusters),
            "distance": self.distance.tolist(),
            "labels": list(self.labels),
            "layers": list(self.layers),
            "most_different": self.most_different.document,
            "most_similar": self.most_similar.document,
            "per_layer": [
                {"layer": layer, "similarity": table.tolist()}
                for layer, table in zip(self.layers, self.cosines, strict=True)
            ],
            "silhouette": self.silhouette,
            "similarity": self.similarity.tolist(),
            "uniqueness": [
                {"label": label, "score": score}
                for label, score in zip(self.labels, self.uniqueness, strict=True)
            ],
        }


def compare_vectors(
    vectors: Sequence[SteeringVector], clusters: int, layers: Layers = "all"
) -> Comparison:
    """Compare vectors of one model, layer by layer.

    Args:
        vectors: At least two.
        clusters: How many groups to make of them.
        layers: Those to compare, which each vector has; all that they have in common
            unless given.

    Raises:
        UsageError: The number of groups is none.
        DirectionError: There are fewer than two vectors or too many groups, they are of
            different models, have no layer in common, or a direction is all zeros.
        LayerError: A vector lacks a layer that is asked for.
    """
    check_numbers(len(vectors), clusters)
    labels = label_vectors(vectors)
    check_one_model(vectors, labels)
    common = choose_layers(vectors, labels, layers)
    directions = np.stack(
        [[vector.direction(layer) for vector in vectors] for layer in common]
    ).astype(np.float64)
    units = _units(directions, labels, common)
    distance = np.mean([*map(_distances, units)], axis=0)
    groups = average_linkage(distance, clusters)
    return Comparison(
        model=next((v.model for v in vectors if v.method != FOREIGN_METHOD), ""),
        labels=labels,
        layers=common,
        cosines=np.stack([*map(_cosines, units)]),
        distance=distance,
        uniqueness=_uniqueness(directions),
        clusters=groups,
        silhouette=mean_silhouette(distance, groups),
    )


def _units(directions: F64, labels: Sequence[str], layers: Sequence[int]) -> F64:
    """Scale directions (num_layers, num_vectors, hidden_size) to length 1."""
    lengths = np.linalg.norm(directions, axis=-1, keepdims=True)
    for place, each in zip(*np.nonzero(lengths[..., 0] == 0), strict=True):
        raise DirectionError(
            f"the direction of {quoted(labels[each])} at layer {layers[place]} is all "
            "zeros",
            layer=layers[place],
        )
    units: F64 = directions / lengths
    return units


def _cosines(units: F64) -> F64:
    cosines: F64 = np.clip(units @ units.T, -1, 1)
    np.fill_diagonal(cosines, 1.0)
    return cosines


def _distances(units: F64) -> F64:
    """Measure how far units are apart; a direction and its opposite are one axis."""
    apart = [
        np.minimum(
            np.linalg.norm(units - each, axis=1), np.linalg.norm(units + each, axis=1)
        )
        for each in units
    ]
    return np.array(apart)


def _uniqueness(directions: F64) -> tuple[float, ...]:
    """Measure what of each vector's length no sum of the others makes up."""
    num_vectors = directions.shape[1]
    scores = []
    for each in range(num_vectors):
        others = np.arange(num_vectors) != each
        rests = [_outside_span(table[each], table[others]) for table in directions]
        whole = np.sum(directions[:, each] ** 2)
        scores.append(float(np.sqrt(np.sum(np.square(rests)) / whole)))
    return tuple(scores)


def _outside_span(direction: F64, others: F64) -> float:
    """Return the length of a direction's part at right angles to all others."""
    scaled = others / np.linalg.norm(others, axis=1, keepdims=True)
    _, sizes, axes = np.linalg.svd(scaled, full_matrices=False)
    axes = axes[sizes > _ROUNDING * sizes[0]]
    return float(np.linalg.norm(direction - axes.T @ (axes @ direction)))
