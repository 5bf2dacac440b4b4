"""The ways to apply a vector, row by row in float64, written from their page alone."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
HOWS = ("add", "remove", "replace", "clamp", "at-least", "at-most", "add-below")


def changed(
    row: F64, vector: NDArray[Any], how: str, strength: float, below: float = 0.0
) -> F64:
    """Apply a vector to one row."""
    v = np.asarray(vector, np.float64)
    length = float(np.sqrt((v * v).sum()))
    u = v / length
    p = float((row * u).sum())
    target = strength * length
    if how == "add":
        return row + strength * v
    if how == "remove":
        return row - strength * p * u
    if how == "replace":
        return row - p * u + strength * v
    if how == "add-below":
        return row + strength * v if p < below else row
    if how == "clamp":
        wanted = min(max(p, -target), target)
    elif how == "at-least":
        wanted = max(p, target)
    elif how == "at-most":
        wanted = min(p, target)
    else:
        raise KeyError(how)
    return row + (wanted - p) * u


def applied(
    vector: NDArray[Any],
    how: str,
    strength: float,
    *,
    below: float = 0.0,
    keep_norm: bool = False,
    places: Collection[int] | None = None,
) -> Callable[[F64], F64]:
    """Make what applies a vector to the rows of a whole text, or to some of them."""

    def apply(rows: F64) -> F64:
        made = []
        for place, row in enumerate(rows):
            if places is not None and place not in places:
                made.append(row)
                continue
            new = changed(row, vector, how, strength, below)
            if keep_norm:
                new = new * (np.linalg.norm(row) / np.linalg.norm(new))
            made.append(new)
        return np.stack(made)

    return apply
