"""What steering does to pairs whose sides were scored: its effect and its damage.

A *shift* is how much more steering raises log p of a pair's positive side than that of
its negative one. Its odd part, half of the shift at +s less that at −s, is what turns
round with the vector. The even part is not the vector's meaning: whatever is added, it
costs texts some of their probability, and longer ones more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ster.vectors.metrics import margin_interval

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The odd part of the shifts of pairs.

    Args:
        mean: In nats per pair.
        standard_error: Of the mean; None for one pair.
        interval: The 95 % confidence interval of the mean; None for one pair.
    """

    mean: float
    standard_error: float | None
    interval: tuple[float, float] | None

    @classmethod
    def of(cls, odd_parts: F64) -> Effect:
        """Summarise the odd parts of single pairs, (num_pairs,)."""
        count = len(odd_parts)
        error = float(odd_parts.std(ddof=1)) / math.sqrt(count) if count > 1 else None
        return cls(
            mean=float(odd_parts.mean()),
            standard_error=error,
            interval=margin_interval(odd_parts),
        )

    @property
    def lowest(self) -> float:
        """The lower bound of the interval; of one pair nothing is sure."""
        return self.interval[0] if self.interval else -math.inf

    @property
    def is_negative(self) -> bool:
        """Whether zero lies above the interval; of one pair nothing is sure."""
        return self.interval is not None and self.interval[1] < 0

    @property
    def document(self) -> dict[str, object]:
        """What a report says of it."""
        return {
            "effect": self.mean,
            "effect_interval": list(self.interval) if self.interval else None,
            "effect_standard_error": self.standard_error,
        }


def odd_parts(up: F64, down: F64) -> F64:
    """Return the odd part of each pair's shift, (num_pairs,), in nats.

    Args:
        up: Log p of both sides steered by +s, positive and negative alternating,
            (2·num_pairs,).
        down: Steered by −s.
    """
    halves: F64 = (up - down) / 2
    return halves[0::2] - halves[1::2]


def random_directions(count: int, hidden_size: int, seed: int) -> F32:
    """Draw directions of length 1, evenly over all ways, (count, hidden_size)."""
    drawn = np.random.default_rng(seed).standard_normal((count, hidden_size))
    lengths = np.linalg.norm(drawn, axis=1, keepdims=True)
    unit: F32 = (drawn / lengths).astype(np.float32)
    return unit
