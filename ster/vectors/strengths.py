"""Choosing a strength: how much more likely steering makes the positive sides.

Each side of a pair is scored as a whole response, steered and not. A pair is ordered
when steering raised the log-probability of its positive side more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ster.answering import score_texts
from ster.documents.pairs import ContrastPair, PairSet
from ster.errors import DirectionError
from ster.loaded import LoadedModel
from ster.text import decimal
from ster.vectors.compatibility import check_lengths
from ster.vectors.steering import SteeringVector
from ster.vectors.strength_words import StrengthTrial

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStrength:
    """What steering at one strength does.

    Args:
        strength: The multiplier.
        ordered: The share of pairs whose positive side rose more.
        mean_shift: How much more, on average, in nats.
        selected: This one is the best.
    """

    strength: float
    ordered: float
    mean_shift: float
    selected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StrengthChoice:
    """The measured strengths, and the chosen one.

    Args:
        candidates: In the order in which they were given.
        layers: The layers that were steered.
        method: How their directions were fitted.
        num_pairs: All pairs.
        num_scored: Pairs that were short enough.
        residual_norm: What ``n`` stands for: the mean length of the residual stream,
            over pairs and layers.
    """

    candidates: tuple[MeasuredStrength, ...]
    layers: tuple[int, ...]
    method: str
    num_pairs: int
    num_scored: int
    residual_norm: float

    @property
    def selected(self) -> MeasuredStrength:
        """The chosen strength."""
        return next(each for each in self.candidates if each.selected)

    @property
    def document(self) -> dict[str, object]:
        """What the report says of it."""
        return {
            "candidates": [
                {
                    "mean_shift": each.mean_shift,
                    "ordered": each.ordered,
                    "selected": each.selected,
                    "strength": each.strength,
                }
                for each in self.candidates
            ],
            "layers": list(self.layers),
            "method": self.method,
            "pairs": self.num_pairs,
            "residual_norm": self.residual_norm,
            "scored_pairs": self.num_scored,
            "selected_strength": self.selected.strength,
            "skipped_long": self.num_pairs - self.num_scored,
        }


def select_pairs(
    model: LoadedModel, pairs: PairSet, max_sequence: int
) -> tuple[ContrastPair, ...]:
    """Leave out the pairs that are too long to be scored, and say which.

    Raises:
        PromptError: A side cannot be tokenized.
        DirectionError: No pair is left.
    """
    kept = []
    for number, pair in enumerate(pairs, start=1):
        sides = pair.positive, pair.negative
        num_tokens = max(len(model.encoder.encode_response(side)) for side in sides)
        if num_tokens <= max_sequence:
            kept.append(pair)
            continue
        model.reporter.note(
            f"skipping pair {number}: {num_tokens} tokens exceed the {max_sequence} "
            "token limit"
        )
    if not kept:
        raise DirectionError(f"every pair exceeds the {max_sequence} token limit")
    return tuple(kept)


def select_strength(
    model: LoadedModel,
    vector: SteeringVector,
    pairs: tuple[ContrastPair, ...],
    trial: StrengthTrial,
    residual_norm: float,
) -> tuple[MeasuredStrength, ...]:
    """Measure every strength and mark the best by ordered pairs, then by mean shift.

    Of exact ties the earlier strength stays.

    Args:
        model: What scores the responses.
        vector: What it is steered with.
        pairs: The pairs to score.
        trial: The strengths.
        residual_norm: What a strength in ``n`` is multiplied by.

    Raises:
        DirectionError: A strength makes the vector too long, or logits not finite.
    """
    texts = [side for pair in pairs for side in (pair.positive, pair.negative)]
    values = [strength.times(residual_norm) for strength in trial.strengths]
    steered = [(value, _deltas(vector, value)) for value in values]
    before = np.array(score_texts(model, texts, {}, trial.batch_size))
    measured: list[MeasuredStrength] = []
    for value, deltas in steered:
        after = np.array(score_texts(model, texts, deltas, trial.batch_size))
        measured.append(_measure(value, after - before))
        model.reporter.note(_sentence(measured[-1]))
    best = max(measured, key=lambda each: (each.ordered, each.mean_shift))
    return tuple(replace(each, selected=each is best) for each in measured)


def _deltas(vector: SteeringVector, strength: float) -> dict[int, F32]:
    if strength == 0:
        return {}  # adding zero would still turn -0.0 into 0.0
    with np.errstate(all="ignore"):  # what overflows is refused
        scaled = (vector.array * strength).astype(np.float32)
    deltas = dict(zip(vector.layers, scaled, strict=True))
    check_lengths(deltas)
    return deltas


def _measure(strength: float, rises: NDArray[np.float64]) -> MeasuredStrength:
    """Compare the rises of the sides, which alternate."""
    shifts = rises[0::2] - rises[1::2]
    if not np.isfinite(shifts).all():
        raise DirectionError(
            f"at strength {decimal(strength)} the model's logits are not finite"
        )
    return MeasuredStrength(
        strength=strength,
        ordered=float(np.mean(shifts > 0)),
        mean_shift=float(np.mean(shifts)),
    )


def _sentence(measured: MeasuredStrength) -> str:
    return (
        f"strength {decimal(measured.strength)}: {measured.ordered:.3f} of pairs "
        f"ordered, mean shift {measured.mean_shift:.4f}"
    )
