"""Choosing a strength: how much more likely steering makes the positive sides.

Each side of a pair is scored as a whole response, steered and not. A pair is ordered
when steering raised the log-probability of its positive side more.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ster.documents.pairs import ContrastPair, PairSet
from ster.errors import DirectionError
from ster.runs.answering import score_texts
from ster.runs.session import LoadedModel
from ster.text import decimal
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import MeasuredStrength, StrengthTrial
from ster.workflows.compatibility import check_lengths

F32 = NDArray[np.float32]


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
