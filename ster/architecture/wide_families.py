"""Families that run through mlx-lm: which were checked, how, and which are wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

INSTALL = (
    "mlx-lm, through which Ster runs other families, is not installed here: "
    "pip install 'ster-mlx[mlx-lm]'"
)
# What the numbers below were measured with.
VERSIONS = "mlx-lm 0.32.2 and transformers 5.24.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How a family was checked.

    Args:
        what: The family in words.
        largest_error: The largest difference from transformers in float64 that was
            seen at f32, in any layer, as a share of that layer's largest value.
    """

    what: str
    largest_error: float


CHECKED: Mapping[str, Check] = {}
WRONG: Mapping[str, str] = {}


def way_out(document: Mapping[str, object]) -> str:
    """Say how a family that ster does not own on cpu may run all the same."""
    family = document.get("model_type")
    if not isinstance(family, str):
        return "config.json names no model_type"
    known = "runs" if family in CHECKED else "may run"
    return (
        f"it {known} through mlx-lm on a GPU: --device metal (or cuda) with the extra "
        "`mlx-lm`, pip install 'ster-mlx[mlx-lm]'"
    )
