"""The families that ster reads, and how each was checked: ``ster models``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from ster.architecture.families import FAMILIES
from ster.architecture.wide_families import CHECKED, VERSIONS

OWNED_CHECK = "every layer against transformers in float64, by numpy and by MLX"
WIDE_CHECK = f"{VERSIONS}: every layer at f32 against float64, next tokens, steering"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family that was checked.

    Args:
        family: Its ``model_type``.
        what: The models that have it.
        through: ``ster`` where ster computes it itself, on every device; ``mlx-lm``
            where it runs through that, on metal and cuda.
        largest_error: As for ``wide_families.Check``; None where the tests hold it to
            less than 5e-5 by numpy and by MLX.
    """

    family: str
    what: str
    through: str
    largest_error: float | None

    @property
    def checked(self) -> str:
        """How it was checked, in words."""
        return OWNED_CHECK if self.through == "ster" else WIDE_CHECK


def families() -> list[Family]:
    """List those that ster owns, in their own order, then the others by name."""
    return [*_owned(), *_wide()]


def _owned() -> Iterator[Family]:
    for family, reader in FAMILIES.items():
        # The file's first sentence says which models there are.
        text = sys.modules[reader.__module__].__doc__ or ""
        what = text.partition(" Source:")[0].strip().removesuffix(".")
        yield Family(family=family, what=what, through="ster", largest_error=None)


def _wide() -> Iterator[Family]:
    for family in sorted(CHECKED.keys() - FAMILIES.keys()):
        check = CHECKED[family]
        yield Family(
            family=family,
            what=check.what,
            through="mlx-lm",
            largest_error=check.largest_error,
        )


def markdown_table() -> str:
    """Write the list as the README has it."""
    lines = [
        "| model_type | models | runs through | largest error |",
        "|---|---|---|---|",
    ]
    for each in families():
        error = "" if each.largest_error is None else f"{each.largest_error:.1e}"
        lines.append(f"| {each.family} | {each.what} | {each.through} | {error} |")
    return "\n".join(lines) + "\n"
