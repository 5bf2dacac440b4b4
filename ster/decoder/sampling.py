"""How logits become a token: pure functions of numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """How tokens are drawn at random.

    Args:
        temperature: Divides the logits; above 0.
        top_p: Keep the fewest likeliest tokens whose mass reaches this; None keeps all.
        at: For each text a point of [0, 1), at which its token is drawn.
    """

    temperature: float
    top_p: float | None
    at: F64

    def draw(self, logits: F32, text: int) -> int:
        """Draw a text's token from its logits, (vocab_size,)."""
        mass = probabilities(logits, self.temperature)
        if self.top_p is not None:
            mass = keep_top(mass, self.top_p)
        return draw(mass, float(self.at[text]))


def log_sum_exp(logits: F32) -> F64:
    """Compute the log of the summed exponentials of rows, which are spoilt.

    Args:
        logits: (num_rows, vocab_size).
    """
    most = logits.max(axis=1)
    logits -= most[:, None]
    summed: F64 = most + np.log(
        np.exp(logits, out=logits).sum(axis=1), dtype=np.float64
    )
    return summed


def probabilities(logits: F32, temperature: float) -> F64:
    """Compute softmax(logits / temperature)."""
    below = logits.astype(np.float64) - float(logits.max())
    # The largest stays 0 at any temperature; the others may reach -inf, of mass 0.
    with np.errstate(over="ignore"):
        mass = np.exp(below / temperature)
    normalised: F64 = mass / mass.sum()
    return normalised


def keep_top(mass: F64, top_p: float) -> F64:
    """Drop all but the fewest likeliest tokens that reach ``top_p``, and normalise.

    The token that crosses the threshold is kept; of equals, the earlier.
    """
    order = np.argsort(-mass, kind="stable")
    reached = np.cumsum(mass[order])
    count = int(np.searchsorted(reached, top_p)) + 1
    kept = np.zeros_like(mass)
    kept[order[:count]] = mass[order[:count]]
    normalised: F64 = kept / kept.sum()
    return normalised


def draw(mass: F64, at: float) -> int:
    """Pick the token at a point of [0, 1) laid along the probabilities."""
    reached = np.cumsum(mass)
    # Rounding may leave the sum below one; beyond it, take the last token of any mass.
    index = int(np.searchsorted(reached, at * reached[-1], side="right"))
    return min(index, int(np.flatnonzero(mass)[-1]))
