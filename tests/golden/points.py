"""Reads the golden files of the points inside blocks that make_points.py wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ster.points import POINTS, inner_points
from tests.golden.golden import F64, FOLDER, Golden, read_golden

POINTS_FOLDER = FOLDER / "points"
NAMES = sorted(path.stem for path in POINTS_FOLDER.glob("*.json"))
# In a fixed order, as the files have them.
INNER = tuple(point for point in POINTS if point in inner_points(POINTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class PointRows:
    """What lies inside the blocks at a prompt's last token.

    Args:
        prompt: Token ids.
        rows: By point, (num_layers, hidden_size).
    """

    prompt: list[int]
    rows: Mapping[str, F64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenPoints:
    """The points of a case whose config, seed and streams are in the case's own file.

    Args:
        golden: That file.
        plain: One of its prompts.
        steered: Its steered prompt, steered.
    """

    golden: Golden
    plain: PointRows
    steered: PointRows

    @property
    def points(self) -> tuple[str, ...]:
        """List the points inside this family's blocks."""
        return tuple(self.plain.rows)


def read_points_of(name: str) -> GoldenPoints:
    document = json.loads((POINTS_FOLDER / f"{name}.json").read_text())
    golden = read_golden(name)
    assert document["fingerprint"] == golden.fingerprint
    return GoldenPoints(
        golden=golden,
        plain=_rows(document["plain"]),
        steered=_rows(document["steered"]),
    )


def _rows(record: dict[str, Any]) -> PointRows:
    rows = {point: np.array(record[point]) for point in INNER if point in record}
    return PointRows(prompt=record["token_ids"], rows=rows)
