"""How often chance alone parts pairs as unevenly: the sign test."""

from __future__ import annotations

from fractions import Fraction
from math import comb, erfc, sqrt

# From here on a normal approximation is as good as the exact sum, which takes long.
_MANY = 1000


def sign_test(one: int, other: int) -> float:
    """Return how likely so uneven a pair of counts is by chance, either way round.

    Source: the two-sided sign test, exact up to a thousand counts.

    Args:
        one: How many point one way; ties count for neither.
        other: How many point the other way.
    """
    fewer, more = sorted((one, other))
    trials = fewer + more
    if trials > _MANY:
        return erfc((more - fewer - 1) / sqrt(2 * trials))
    tail = sum(comb(trials, k) for k in range(fewer + 1))
    return min(1.0, float(2 * Fraction(tail, 2**trials)))
