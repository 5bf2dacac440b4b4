"""Measuring a vector: how its layers order pairs, and what steering with it does."""

from __future__ import annotations

from dataclasses import replace

from ster.documents.pairs import PairSet
from ster.errors import require_type
from ster.runs.reading import ReadingChoice
from ster.runs.session import Session
from ster.token_choice import Tokens
from ster.vectors.selection import Evaluation, score_layers
from ster.vectors.steering import SteeringVector
from ster.vectors.trials import StrengthTrial
from ster.workflows.compatibility import check_measured
from ster.workflows.confounds import check_confounds
from ster.workflows.pairs import (
    choose_as_trained,
    plan_pairs,
    read_pairs,
    warn_of_prompts,
)
from ster.workflows.strengths import check_scales, encode_sides, measure_strengths


def evaluate_vector(
    session: Session,
    pairs: PairSet,
    vector: SteeringVector,
    trial: StrengthTrial | None = None,
    *,
    tokens: Tokens | None = None,
    role: str | None = None,
) -> Evaluation:
    """Measure how each layer of a vector orders pairs, and what strengths do.

    Args:
        session: What reads and scores the pairs.
        pairs: The pairs.
        vector: What is measured; of this session's model.
        trial: The strengths to measure, if any.
        tokens: What is read of each side; as for the vector unless given.
        role: Whose turn a side without a prompt is; as for the vector unless given.

    Raises:
        SterError: The vector or a side is refused, or the run does not fit.
    """
    require_type(pairs, PairSet, "pairs")
    require_type(vector, SteeringVector, "vector")
    if trial is not None:
        require_type(trial, StrengthTrial, "trial")
    check_measured(vector, session)
    if trial is not None:
        check_scales(vector, trial)
    read = choose_as_trained(session, vector, tokens, role)
    warn_of_prompts(session, vector, pairs)
    reading = plan_pairs(session, pairs, vector.layers, repeats=True, choice=read)
    # Both encodings before any weight.
    sides = encode_sides(session, pairs, trial.max_sequence) if trial else None
    rows = read_pairs(reading)
    scores = score_layers(vector, rows)
    evaluation = Evaluation(
        vector=vector,
        chat_template=session.encoder.chat_template,
        num_pairs=len(pairs),
        layers=scores,
        confounds=check_confounds(reading, max(each.accuracy for each in scores)),
    )
    if trial is None or sides is None:
        return evaluation
    _say_turns(session, pairs, read)
    if vector.residual_norms is None and any(s.of_norm for s in trial.strengths):
        session.reporter.note(
            "the vector carries no residual norms: n counts in those of these pairs"
        )
    norms = vector.residual_norms or tuple(map(float, rows.mean_norms))
    choice = measure_strengths(session, vector, sides, trial, norms)
    return replace(evaluation, strength=choice)


def _say_turns(session: Session, pairs: PairSet, choice: ReadingChoice) -> None:
    """Say where sides were read after another turn than they are scored as."""
    applied = session.encoder.chat_template == "applied"
    if applied and choice.role == "user" and None in pairs.asked:
        session.reporter.note(
            "sides without a prompt are read as a user's turn and scored as an "
            "assistant's; role assistant reads them as they are scored"
        )
