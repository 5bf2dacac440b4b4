"""Measuring strengths: how much more likely steering makes the positive sides.

Each side of a pair is scored as a whole response, steered and not. A pair is ordered
when steering raised the log-probability of its positive side more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ster.checkpoint.tokens.responses import EncodedResponses
from ster.documents.pairs import PairSet
from ster.errors import DirectionError
from ster.runs.scoring import check_responses, plan_scoring
from ster.runs.session import Session
from ster.stream.changes import Deltas
from ster.text import decimal
from ster.vectors.applying import Applying
from ster.vectors.measured import MeasuredStrength, StrengthChoice, StrengthTrial
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import Strength
from ster.workflows.interventions import trial_deltas


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedSides:
    """Both sides of pairs as responses.

    Args:
        responses: Positive and negative sides, alternating; without the pairs that are
            too long.
        num_pairs: All pairs.
    """

    responses: EncodedResponses
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
    return EncodedSides(responses=encoded.take(kept), num_pairs=len(pairs))


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
    """Measure every strength and mark the best by ordered pairs, then by mean shift.

    Of exact ties the earlier strength wins. The weights are opened once for all.

    Args:
        session: What scores the sides.
        vector: What it is steered with.
        sides: Both sides of the pairs.
        trial: The strengths.
        residual_norms: What a strength that ends in ``n`` is multiplied by, one for
            each layer of the vector.

    Raises:
        DirectionError: A strength makes the vector too long, or logits not finite.
        CapacityError: The run does not fit.
    """
    # Nothing is the baseline, whether anybody asks for it or not.
    nothing = trial.applying.does_nothing_at
    asked = [None if nothing(each) else each for each in trial.strengths]
    distinct = [*dict.fromkeys([None, *asked])]
    steerings = _steerings(session, vector, distinct, trial.applying, residual_norms)
    check_responses(sides.responses, steerings)
    scoring = plan_scoring(
        session,
        sides.responses,
        trial.batch_size,
        steerings=len(distinct),
        by_prompt=trial.applying.where.needs_prompt,
    )
    with scoring.open() as scorer:
        found = scorer.score_all(steerings)
    scores = dict(zip(distinct, map(np.array, found), strict=True))
    mean_norm = math.fsum(residual_norms) / len(residual_norms)
    measured: list[MeasuredStrength] = []
    for given, each in zip(trial.strengths, asked, strict=True):
        rises = scores[each] - scores[None]
        measured.append(_compare(given, mean_norm, rises))
        session.reporter.note(_sentence(measured[-1]))
    return StrengthChoice(
        candidates=_mark_best(measured),
        layers=vector.layers,
        method=vector.method,
        num_pairs=sides.num_pairs,
        num_scored=len(sides.responses.forms) // 2,
        forms=_count(sides.responses.forms[0::2]),
        residual_norms=residual_norms,
    )


def _steerings(
    session: Session,
    vector: SteeringVector,
    strengths: Sequence[Strength | None],
    applying: Applying,
    norms: Sequence[float],
) -> list[Deltas]:
    """Say what is done at each strength; None is nothing."""
    num_layers = session.spec.num_hidden_layers
    return [
        {} if each is None else trial_deltas(vector, each, norms, applying, num_layers)
        for each in strengths
    ]


def _count(forms: Sequence[str]) -> dict[str, int]:
    """Count the pairs of each form, whose sides have the same."""
    return {form: forms.count(form) for form in sorted(set(forms))}


def _mark_best(measured: Sequence[MeasuredStrength]) -> tuple[MeasuredStrength, ...]:
    best = max(measured, key=lambda each: (each.ordered, each.mean_shift))
    return tuple(replace(each, selected=each is best) for each in measured)


def _compare(
    strength: Strength, mean_norm: float, rises: NDArray[np.float64]
) -> MeasuredStrength:
    """Compare the rises of the sides, which alternate."""
    shifts = rises[0::2] - rises[1::2]
    if not np.isfinite(shifts).all():
        raise DirectionError(
            f"at strength {strength} the model's logits are not finite",
            field="strength",
            found=str(strength),
        )
    return MeasuredStrength(
        strength=strength.times(mean_norm),
        strength_word=strength.word,
        ordered=float(np.mean(shifts > 0)),
        mean_shift=float(np.mean(shifts)),
    )


def _sentence(measured: MeasuredStrength) -> str:
    spelled = measured.strength_word or decimal(measured.strength)
    return (
        f"strength {spelled}: {measured.ordered:.3f} of pairs "
        f"ordered, mean shift {measured.mean_shift:.4f}"
    )
