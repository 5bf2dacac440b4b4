"""Logits -> token id. Pure functions of one row of logits, on the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ster.errors import UsageError, require_type

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is chosen.

    Args:
        temperature: Divides the logits; 0 or less takes the likeliest token.
        top_p: Keep the fewest likeliest tokens whose mass reaches this; None keeps all.
        seed: Same seed, same device, same text.

    Raises:
        UsageError: A number is out of its range.
    """

    temperature: float = 0.0
    top_p: float | None = None
    seed: int = 42

    def __post_init__(self) -> None:
        """Refuse what no token can be drawn with."""
        if not math.isfinite(self.temperature):
            raise UsageError(f"temperature must be finite, not {self.temperature}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(
                f"top-p must be above zero and at most one, not {self.top_p}"
            )
        if self.seed < 0:
            raise UsageError(f"seed must be at least zero, not {self.seed}")


def make_sampler(sampling: Sampling) -> Callable[[F32], int]:
    """Return the function that takes each step's logits, (vocab_size,), to a token."""
    require_type(sampling, Sampling, "sampling")
    if sampling.temperature <= 0:
        return lambda logits: int(logits.argmax())
    random = np.random.default_rng(sampling.seed)

    def sample(logits: F32) -> int:
        mass = probabilities(logits, sampling.temperature)
        if sampling.top_p is not None:
            mass = keep_top(mass, sampling.top_p)
        return draw(mass, random.random())

    return sample


def probabilities(logits: F32, temperature: float) -> NDArray[np.float64]:
    """Compute softmax(logits / temperature)."""
    below = logits.astype(np.float64) - float(logits.max())
    # The largest stays 0 at any temperature; the others may reach -inf, of mass 0.
    with np.errstate(over="ignore"):
        mass = np.exp(below / temperature)
    normalised: NDArray[np.float64] = mass / mass.sum()
    return normalised


def keep_top(mass: NDArray[np.float64], top_p: float) -> NDArray[np.float64]:
    """Drop all but the fewest likeliest tokens that reach ``top_p``, and normalise.

    The token that crosses the threshold is kept; of equals, the earlier.
    """
    order = np.argsort(-mass, kind="stable")
    reached = np.cumsum(mass[order])
    count = int(np.searchsorted(reached, top_p)) + 1
    kept = np.zeros_like(mass)
    kept[order[:count]] = mass[order[:count]]
    normalised: NDArray[np.float64] = kept / kept.sum()
    return normalised


def draw(mass: NDArray[np.float64], at: float) -> int:
    """Pick the token at a point of [0, 1) laid along the probabilities."""
    reached = np.cumsum(mass)
    # Rounding may leave the end below one; the last token with any mass is then meant.
    index = int(np.searchsorted(reached, at * reached[-1], side="right"))
    return min(index, int(np.flatnonzero(mass)[-1]))
