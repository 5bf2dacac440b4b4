"""How long the sides of pairs are, and whether one is longer than chance allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

from ster.documents.pair_sets.sign_test import sign_test


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long the sides are.

    Args:
        unit: What is counted.
        positive: Of each positive side.
        negative: Of each negative side.
    """

    unit: str
    positive: Sequence[int]
    negative: Sequence[int]

    @property
    def longer(self) -> dict[str, int]:
        """In how many pairs which side is longer."""
        both = list(zip(self.positive, self.negative, strict=True))
        return {
            "positive": sum(a > b for a, b in both),
            "negative": sum(a < b for a, b in both),
            "neither": sum(a == b for a, b in both),
        }

    @property
    def chance(self) -> float:
        """How likely so uneven a number of longer sides is by chance: a sign test."""
        longer = self.longer
        return sign_test(longer["positive"], longer["negative"])

    @property
    def document(self) -> dict[str, object]:
        """The lengths as a document."""
        return {
            "unit": self.unit,
            "positive": _describe(self.positive),
            "negative": _describe(self.negative),
            "longer": self.longer,
            "p_value": self.chance,
        }

    def __str__(self) -> str:
        """Write the median and the range of both sides."""
        shown = [
            f"{name} {median(sizes):g} ({min(sizes)} to {max(sizes)})"
            for name, sizes in (
                ("positive", self.positive),
                ("negative", self.negative),
            )
        ]
        return ", ".join(shown)


def _describe(lengths: Sequence[int]) -> dict[str, float]:
    return {
        "least": min(lengths),
        "median": float(median(lengths)),
        "mean": float(mean(lengths)),
        "most": max(lengths),
    }
