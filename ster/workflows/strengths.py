"""Measuring strengths: how much more likely steering makes the positive sides.

Each side of a pair is scored as a whole response: steered, steered the other way, and
not. A pair is ordered when steering raised the log-probability of its positive side
more. What turns round with the vector is its effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ster.documents.pairs import PairSet
from ster.errors import DirectionError
from ster.runs.session import Session
from ster.vectors.controls import ControlEffects
from ster.vectors.effects import Effect, odd_parts
from ster.vectors.measured import (
    MeasuredStrength,
    StrengthChoice,
    choose,
)
from ster.vectors.side_rises import SideLengths, SideRises
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import Strength
from ster.vectors.trials import StrengthTrial
from ster.workflows.neutral_answers import encode_neutral
from ster.workflows.steered_sides import SteeredSides
from ster.workflows.strength_scores import StrengthScores, StrengthScoring

_NOTHING = Strength(value=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedSides:
    """Both sides of pairs as responses.

    Args:
        scored: Positive and negative sides, without the pairs that are too long, and
            the neutral answers.
        num_pairs: All pairs.
    """

    scored: SteeredSides
    num_pairs: int


def encode_sides(
    session: Session, pairs: PairSet, max_sequence: int | None
) -> EncodedSides:
    """Encode both sides of every pair as responses, once for all strengths.

    Pairs that are too long to be scored are left out, each with a note.

    Raises:
        DocumentError: A pair has a system's turn, which is not scored.
        PromptError: A side cannot be tokenized.
        DirectionError: No pair is left.
    """
    pairs.refuse_systems("scored")
    encoded = session.encoder.encode_responses(pairs.prompts, pairs.asked)
    both = zip(encoded.token_ids[0::2], encoded.token_ids[1::2], strict=True)
    kept: list[int] = []
    lengths: list[int] = []
    for number, pair in enumerate(both, start=1):
        lengths.append(max(map(len, pair)))
        if max_sequence is None or lengths[-1] <= max_sequence:
            kept += 2 * number - 2, 2 * number - 1
            continue
        session.reporter.note(
            f"skipping pair {number}: {lengths[-1]} tokens exceed the {max_sequence} "
            "token limit"
        )
    if not kept:
        raise DirectionError(
            f"every pair exceeds the {max_sequence} token limit",
            f"the shortest has {min(lengths)} tokens",
            field="max_sequence",
            found=max_sequence,
            expected=min(lengths),
        )
    scored = SteeredSides(sides=encoded.take(kept), neutral=encode_neutral(session))
    return EncodedSides(scored=scored, num_pairs=len(pairs))


def check_scales(vector: SteeringVector, trial: StrengthTrial) -> None:
    """Refuse strengths in norms of a vector that is in norms already.

    Raises:
        UsageError: A strength would count in residual norms twice.
    """
    if vector.scale is not None:
        for strength in trial.strengths:
            _ = vector.scale * strength


def measure_strengths(
    session: Session,
    vector: SteeringVector,
    sides: EncodedSides,
    trial: StrengthTrial,
    residual_norms: tuple[float, ...],
) -> StrengthChoice:
    """Measure every strength, at its opposite too, beside turned copies of the vector.

    The best is marked if one holds up; see ``choose``. What speaks against all of it is
    said as warnings.

    Args:
        session: What scores the sides.
        vector: What it is steered with.
        sides: Both sides of the pairs.
        trial: The strengths.
        residual_norms: What a strength that ends in ``n`` is multiplied by, one for
            each layer of the vector.

    Raises:
        DirectionError: A strength makes the vector too long.
        NumericsError: A score is no finite number.
        CapacityError: The run does not fit.
    """
    # Strength 0 is the baseline, whether anybody asks for it or not.
    asked = [each if each.value else _NOTHING for each in trial.strengths]
    scores = StrengthScoring(
        session=session,
        vector=vector,
        sides=sides.scored,
        trial=trial,
        residual_norms=residual_norms,
    ).score(asked)
    lengths = sides.scored.sides.num_counted
    mean_norm = math.fsum(residual_norms) / len(residual_norms)
    measured: list[MeasuredStrength] = []
    for given, each in zip(trial.strengths, asked, strict=True):
        measured.append(_compare(given, each, scores, lengths, mean_norm))
        session.reporter.note(_sentence(measured[-1]))
    forms = sides.scored.sides.forms
    choice = StrengthChoice(
        candidates=choose(measured, trial.max_damage),
        layers=vector.layers,
        method=vector.method,
        num_pairs=sides.num_pairs,
        num_scored=len(forms) // 2,
        forms=_count(forms[0::2]),
        residual_norms=residual_norms,
        lengths=SideLengths.of(lengths),
        max_damage=trial.max_damage,
        applying=trial.applying,
    )
    for doubt in choice.doubts:
        session.reporter.warn(doubt)
    return choice


def _count(forms: Sequence[str]) -> dict[str, int]:
    """Count the pairs of each form, whose sides have the same."""
    return {form: forms.count(form) for form in sorted(set(forms))}


def _compare(
    given: Strength,
    strength: Strength,
    scores: StrengthScores,
    lengths: Sequence[int],
    mean_norm: float,
) -> MeasuredStrength:
    """Compare the sides steered by a vector, by its opposite, and not at all."""
    unsteered, up = scores.steered[_NOTHING], scores.steered[strength]
    down = scores.turned[strength] if strength.value else unsteered
    rises = up.sides - unsteered.sides
    shifts = rises[0::2] - rises[1::2]
    odd = odd_parts(up.sides, down.sides)
    effect = Effect.of(odd)
    return MeasuredStrength(
        strength=given.times(mean_norm),
        strength_word=given.word,
        ordered=float(np.mean(shifts > 0)),
        mean_shift=float(np.mean(shifts)),
        effect=effect,
        slope=effect.mean / strength.value if strength.value else None,
        rises=SideRises.of(up.sides, down.sides, unsteered.sides, lengths),
        damage=unsteered.neutral - up.neutral,
        controls=_compare_copies(strength, scores, odd),
    )


def _compare_copies(
    strength: Strength, scores: StrengthScores, odd: NDArray[np.float64]
) -> ControlEffects | None:
    """Set turned copies beside the vector, on the same pairs."""
    effects = scores.controls.get(strength)
    if effects is None:
        return None
    pairs = scores.control_pairs
    return ControlEffects(
        effects=effects,
        own=float(odd[pairs].mean()),
        num_pairs=len(pairs),
    )


def _sentence(measured: MeasuredStrength) -> str:
    return (
        f"strength {measured.spelled}: {measured.ordered:.3f} of pairs "
        f"ordered, mean shift {measured.mean_shift:.4f}"
    )
