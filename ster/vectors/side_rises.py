"""What a steering does to the sides of pairs, beside their difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ster.text import counted
from ster.vectors.effects import odd_parts

F64 = NDArray[np.float64]
# Of both-sided sign tests.
_SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRises:
    """How much steering raises the sides of pairs: means over pairs, in nats.

    Args:
        positive: Of log p of positive sides.
        negative: Of negative sides.
        positive_per_token: The rise of each positive side over its tokens.
        negative_per_token: Of each negative side.
        effect_per_token: The odd part of the shift of log p per token.
    """

    positive: float
    negative: float
    positive_per_token: float
    negative_per_token: float
    effect_per_token: float

    @classmethod
    def of(
        cls, up: F64, down: F64, unsteered: F64, lengths: Sequence[int]
    ) -> SideRises:
        """Compare sides steered by +s and −s, and not at all.

        Args:
            up: Log p of positive and negative sides, alternating, (2·num_pairs,).
            down: Steered by −s.
            unsteered: Without steering.
            lengths: How many tokens of each count.
        """
        # A side of one token has none that counts, and no rise.
        rises, tokens = up - unsteered, np.maximum(lengths, 1)
        means = [float(part.mean()) for part in (rises[0::2], rises[1::2])]
        per_token = rises / tokens
        return cls(
            positive=means[0],
            negative=means[1],
            positive_per_token=float(per_token[0::2].mean()),
            negative_per_token=float(per_token[1::2].mean()),
            effect_per_token=float(odd_parts(up / tokens, down / tokens).mean()),
        )

    @property
    def document(self) -> dict[str, object]:
        """What a report says of them."""
        return {
            "effect_per_token": self.effect_per_token,
            "negative_rise": self.negative,
            "negative_rise_per_token": self.negative_per_token,
            "positive_rise": self.positive,
            "positive_rise_per_token": self.positive_per_token,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SideLengths:
    """Which sides of pairs are longer, in tokens that are scored.

    Args:
        positive_longer: In how many pairs the positive side is.
        negative_longer: In how many the negative one.
        num_pairs: Of all pairs.
        positive_mean: Tokens of a positive side on average.
        negative_mean: Of a negative one.
    """

    positive_longer: int
    negative_longer: int
    num_pairs: int
    positive_mean: float
    negative_mean: float

    @classmethod
    def of(cls, lengths: Sequence[int]) -> SideLengths:
        """Compare the sides, which alternate, (2·num_pairs,)."""
        positive, negative = np.array(lengths[0::2]), np.array(lengths[1::2])
        return cls(
            positive_longer=int(np.sum(positive > negative)),
            negative_longer=int(np.sum(positive < negative)),
            num_pairs=len(positive),
            positive_mean=float(positive.mean()),
            negative_mean=float(negative.mean()),
        )

    @property
    def chance(self) -> float:
        """How likely coins, one for each pair, fall as unevenly: a sign test."""
        counts = self.positive_longer, self.negative_longer
        num_coins = sum(counts)
        as_many = range(max(counts), num_coins + 1)
        ways = 2 * sum(math.comb(num_coins, heads) for heads in as_many)
        return min(1.0, ways / (1 << num_coins))

    @property
    def doubt(self) -> str | None:
        """Say which sides are longer and what comes of it; None where neither are.

        They are where it is so in most pairs, and no accident.
        """
        count = max(self.positive_longer, self.negative_longer)
        if self.chance >= _SIGNIFICANT or 2 * count <= self.num_pairs:
            return None
        longer = self.positive_longer > self.negative_longer
        return (
            f"{'positive' if longer else 'negative'} sides are longer in {count} of "
            f"{counted(self.num_pairs, 'pair')} "
            f"({self.positive_mean:.1f} tokens on average, negative "
            f"{self.negative_mean:.1f}): all that steering damages "
            f"{'lowers' if longer else 'raises'} the mean shift and the share of pairs "
            "ordered, not the effect"
        )

    @property
    def document(self) -> dict[str, object]:
        """What a report says of them."""
        return {
            "negative_longer": self.negative_longer,
            "negative_mean": self.negative_mean,
            "positive_longer": self.positive_longer,
            "positive_mean": self.positive_mean,
        }
