"""Where vectors come from, as their metadata and names say it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ster.vectors.steering import SteeringVector


def is_same_model(one: str, other: str) -> bool:
    """Tell whether two names are equal, or two spellings of one directory."""
    if one == other:
        return True
    try:
        return os.path.isdir(one) and os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def common(one: str | None, other: str | None) -> str | None:
    """Return what two vectors share, None where they differ."""
    return one if one == other else None


def joined(one: str, other: str) -> str:
    """Name both, or once what is the same."""
    return one if one == other else f"{one} + {other}"


def term(vector: SteeringVector) -> str:
    """Describe one side of a sum, a sum itself in parentheses."""
    made = vector.metadata.get("sum")
    label = f"({made})" if made else f"{vector.trait_name} ({vector.method})"
    scale = read_scale(vector.metadata)
    return label if scale is None else f"{scale:g} × {label}"


def read_scale(metadata: Mapping[str, str]) -> float | None:
    """Read the scale; anyone may have written it, so what is no number is ignored."""
    try:
        scale = float(metadata["scale"])
    except (KeyError, ValueError):
        return None
    return scale if math.isfinite(scale) else None
