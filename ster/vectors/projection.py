"""Where steering moves the sides of pairs: unsteered and steered rows of one layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ster.errors import DirectionError, UsageError, require_whole_number
from ster.html import to_html
from ster.text import decimal
from ster.vectors.applying import ADDING, Applying
from ster.vectors.components import principal_components
from ster.vectors.interventions import Intervention
from ster.vectors.report_cards import describe_projection, projection_card
from ster.vectors.selection import PairRows
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import Strength

F64 = NDArray[np.float64]
SIDES = ("positive", "negative")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Projection:
    """Rows of pairs, unsteered and steered, in the plane where they differ most.

    Args:
        vector: What was applied.
        strength: How much of it.
        layer: The block after which the rows were read, before the vector's own
            direction of that layer is applied.
        chat_template: How the pairs were encoded.
        explained: The share of the unsteered rows' variance along each of their
            principal components.
        coordinates: Places on these components: unsteered then steered, pair by pair,
            positive then negative side, (2, num_pairs, 2, num_components).
        shift_along_direction: How far the rows moved along the vector's unit direction
            at this layer, on average; None where the vector has none there.
        unsteered_distance: The mean distance of negative sides from the mean of the
            unsteered positive ones.
        steered_distance: The same of the steered negative sides.
        moved_toward_positive: The share of negative sides that steering brought nearer
            to that mean.
        applying: How the vector was applied, and to which tokens.
    """

    vector: SteeringVector
    strength: Strength
    layer: int
    chat_template: str
    explained: tuple[float, ...]
    coordinates: F64
    shift_along_direction: float | None
    unsteered_distance: float
    steered_distance: float
    moved_toward_positive: float
    applying: Applying = ADDING

    def __repr__(self) -> str:
        """Show what moved how far, not the points."""
        return describe_projection(self)

    def _repr_html_(self) -> str:
        return to_html(projection_card(self))

    @property
    def num_pairs(self) -> int:
        """How many pairs were read."""
        return len(self.coordinates[0])

    @property
    def spelled(self) -> str:
        """The strength as it was given, and how it was applied if not just added."""
        strength = self.strength.word or decimal(self.strength.value)
        return f"{strength} ({self.applying})" if self.applying.remark else strength

    @property
    def document(self) -> dict[str, object]:
        """The report. A strength in norms is no number: null, and its word beside."""
        word = self.strength.word
        return {
            "chat_template": self.chat_template,
            "explained": list(self.explained),
            **self.applying.entry,
            "layer": self.layer,
            "model": self.vector.model,
            "negative_distance_to_positive": {
                "steered": self.steered_distance,
                "unsteered": self.unsteered_distance,
            },
            "negatives_moved_toward_positive": self.moved_toward_positive,
            "pair_count": self.num_pairs,
            "points": [*self._points()],
            "shift_along_direction": self.shift_along_direction,
            "strength": None if word else self.strength.value,
            **({"strength_word": word} if word else {}),
            "trait_name": self.vector.trait_name,
        }

    def _points(self) -> Iterator[dict[str, object]]:
        for steered, pair in product((False, True), range(self.num_pairs)):
            for side, name in enumerate(SIDES):
                yield {
                    "coordinates": self.coordinates[int(steered), pair, side].tolist(),
                    "pair": pair,
                    "side": name,
                    "steered": steered,
                }


def check_components(components: int) -> int:
    """Refuse a number of components that is none.

    Raises:
        UsageError: It is no whole number, or below 1.
    """
    if require_whole_number(components, "components") < 1:
        raise UsageError(
            f"components must be at least 1, not {components}",
            field="components",
            found=components,
        )
    return components


def project_pairs(
    applied: Intervention,
    layer: int,
    components: int,
    *,
    unsteered: PairRows,
    steered: PairRows,
    chat_template: str,
) -> Projection:
    """Measure where steering moved rows.

    Args:
        applied: What was applied, how much of it and how.
        layer: The layer that was read.
        components: How many principal components of the unsteered rows at most; there
            are fewer where the rows span fewer.
        unsteered: Rows of that layer alone, (num_pairs, 1, hidden_size) of each side.
        steered: The same rows with the vector applied to the stream.
        chat_template: How the pairs were encoded.

    Raises:
        DirectionError: The unsteered rows are all alike.
    """
    before, after = _sides(unsteered), _sides(steered)
    rows = before.reshape(-1, before.shape[-1])
    found = principal_components(rows, components)
    if not len(found.axes):
        raise DirectionError(
            f"the rows of these pairs at layer {layer} are all alike, and have no "
            "principal component",
            layer=layer,
        )
    target = before[:, 0].mean(axis=0)
    lengths, steered_lengths = (
        np.linalg.norm(each[:, 1] - target, axis=-1) for each in (before, after)
    )
    return Projection(
        vector=applied.vector,
        strength=applied.strength,
        applying=applied.applying,
        layer=layer,
        chat_template=chat_template,
        explained=tuple(found.explained.tolist()),
        coordinates=np.stack([*map(found.coordinates, (before, after))]),
        shift_along_direction=_shift(applied.vector, layer, after - before),
        unsteered_distance=float(lengths.mean()),
        steered_distance=float(steered_lengths.mean()),
        moved_toward_positive=float(np.mean(steered_lengths < lengths)),
    )


def _sides(rows: PairRows) -> F64:
    """Put both sides of each pair together in f64, (num_pairs, 2, hidden_size)."""
    both = rows.positive[:, 0], rows.negative[:, 0]
    return np.stack([each.astype(np.float64) for each in both], axis=1)


def _shift(vector: SteeringVector, layer: int, moves: F64) -> float | None:
    """Return the mean of moves along a vector's unit direction, if it has one."""
    if layer not in vector.layers:
        return None
    direction = vector.direction(layer).astype(np.float64)
    length = np.linalg.norm(direction)
    return float(np.mean(moves @ direction) / length) if length else None
