"""Copies of a vector that are turned at random: what chance does in its place.

A copy keeps the length of each layer's direction and the angles between those of
different layers, and points anywhere. Directions drawn for each layer on their own
would cancel out where those of a fitted vector add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlEffects:
    """The effects of a vector and of its turned copies, at one strength.

    Args:
        effects: Of the copies, in nats; at least one.
        own: Of the vector on the same pairs.
        num_pairs: How many these are.
    """

    effects: tuple[float, ...]
    own: float
    num_pairs: int

    @property
    def rms(self) -> float:
        """The root of the mean square of the copies' effects."""
        return math.sqrt(math.fsum(e * e for e in self.effects) / len(self.effects))

    @property
    def largest(self) -> float:
        """The largest effect of a copy, at either sign."""
        return max(map(abs, self.effects))

    @property
    def share(self) -> float:
        """The share of all turned copies that have an effect as large as the vector's.

        Turned round, a direction has the opposite effect, so those of random directions
        lie around zero; they are nearly linear in a direction's many components, so
        nearly normal. Their spread is known from a few of them alone.

        Source: Student 1908, with as many degrees of freedom as there are copies.
        """
        if self.rms == 0:
            return 0.0 if self.own > 0 else 1.0
        return student_tail(self.own / self.rms, len(self.effects))

    def reached_by(self, share: float) -> float:
        """Return the effect that this share of all turned copies have, or a larger one.

        Args:
            share: Above zero, and at most a half.
        """
        return student_quantile(share, len(self.effects)) * self.rms

    @property
    def document(self) -> dict[str, object]:
        """What a report says of them."""
        return {
            "directions": len(self.effects),
            "effect_largest": self.largest,
            "effect_rms": self.rms,
            "pairs": self.num_pairs,
            "share_as_large": self.share,
            "vector_effect": self.own,
        }


def turn_at_random(array: F32, count: int, seed: int) -> F32:
    """Turn a vector's directions, all by the same random rotation.

    Args:
        array: (num_layers, hidden_size).
        count: How many copies.
        seed: The same seed makes the same copies.

    Returns:
        (count, num_layers, hidden_size), with the lengths and angles of the rows.
    """
    generator = np.random.default_rng(seed)
    _, triangle = np.linalg.qr(array.T.astype(np.float64))
    shape = array.shape[1], len(triangle)
    copies = np.empty((count, *array.shape), np.float32)
    for number in range(count):
        axes, signs = np.linalg.qr(generator.standard_normal(shape))
        # Without these signs the axes would not point evenly over all ways.
        copies[number] = (axes * np.sign(np.diag(signs)) @ triangle).T
    return copies


def student_tail(t: float, freedom: int) -> float:
    """Return the probability that Student's t is above a value.

    Source: Abramowitz and Stegun 1964, 26.7.3 and 26.7.4.
    """
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for power in range(2 + odd, freedom - 1, 2):
        term *= cosine**2 * (power - 1) / power
        total += term
    within = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return min(1.0, max(0.0, (1 - within) / 2))


def student_quantile(tail: float, freedom: int) -> float:
    """Return the value that Student's t is above with this probability.

    Args:
        tail: The probability, above zero and at most a half.
        freedom: The degrees of freedom.
    """
    lower, upper = 0.0, math.pi / 2
    for _ in range(60):  # halvings, to the last bit
        angle = (lower + upper) / 2
        if student_tail(math.sqrt(freedom) * math.tan(angle), freedom) > tail:
            lower = angle
        else:
            upper = angle
    return math.sqrt(freedom) * math.tan(lower)
