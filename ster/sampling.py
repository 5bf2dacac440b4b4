"""Logits -> token id. Pure functions of one row of logits, on the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is chosen.

    Args:
        temperature: Divides the logits; 0 or less takes the likeliest token.
        top_p: Keep the fewest likeliest tokens whose mass reaches this; None keeps all.
        seed: Same seed, same device, same text.
    """

    temperature: float = 0.0
    top_p: float | None = None
    seed: int = 42


def make_sampler(sampling: Sampling) -> Callable[[F32], int]:
    """Return the function that takes each step's logits, (vocab_size,), to a token."""
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
    scaled = logits.astype(np.float64) / temperature
    mass = np.exp(scaled - scaled.max())
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
