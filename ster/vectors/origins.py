"""What a vector says of how it was made: names, and metadata of scales and sums."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from ster.errors import UsageError
from ster.vectors.strengths import Strength, parse_strengths


def is_same_model(one: str, other: str) -> bool:
    """Tell whether two names are equal, or two spellings of one directory."""
    if one == other:
        return True
    try:
        return os.path.isdir(one) and os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def common(one: str | None, other: str | None) -> str | None:
    """Return what both say, or None."""
    return one if one == other else None


def joined(one: str, other: str) -> str:
    """Name what two make together."""
    return one if one == other else f"{one} + {other}"


def joined_traits(
    one: str, ones: Mapping[str, str], other: str, others: Mapping[str, str]
) -> str:
    """Name what two make together by their traits; their metadata say which way.

    What points the other way is taken away: a difference does not read as a sum.
    """
    first, second = _signed(one, ones), _signed(other, others)
    if first == second:
        return "".join(first)
    (sign, name), (between, last) = first, second
    return f"{sign}{name} {between or '+'} {last}"


def _signed(trait_name: str, metadata: Mapping[str, str]) -> tuple[str, str]:
    scale = read_scale(metadata)
    if scale is None or scale.value >= 0:
        return "", trait_name
    several = "sum" in metadata and any(sign in trait_name for sign in (" + ", " - "))
    return "-", f"({trait_name})" if several else trait_name


def read_scale(metadata: Mapping[str, str]) -> Strength | None:
    """Read the scale; anyone may have written it, so what is none is ignored."""
    try:
        (scale,) = parse_strengths(metadata["scale"])
    except (KeyError, ValueError, UsageError):
        return None
    return scale if math.isfinite(scale.value) else None


def spell_scale(scale: Strength) -> str:
    """Write a scale as metadata have it."""
    return f"{scale.value:g}{'n' * scale.of_norm}"


def spell_term(trait_name: str, method: str, metadata: Mapping[str, str]) -> str:
    """Describe one side of a sum, a sum itself in parentheses."""
    made = metadata.get("sum")
    label = f"({made})" if made else f"{trait_name} ({method})"
    scale = read_scale(metadata)
    return label if scale is None else f"{spell_scale(scale)} × {label}"
