"""Reading pairs unsteered and steered, to see where a vector moves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ster.documents.pairs import PairSet
from ster.errors import require_type
from ster.layers import check_layers
from ster.runs.reading import ReadingChoice
from ster.runs.session import Session
from ster.text import counted
from ster.token_choice import Tokens
from ster.vectors.interventions import Intervention
from ster.vectors.projection import Projection, check_components, project_pairs
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import StrengthLike
from ster.workflows.pairs import (
    choose_as_trained,
    plan_pairs,
    read_pairs,
    warn_of_prompts,
)
from ster.workflows.steering import Steered, take_steering


def project_vector(
    session: Session,
    pairs: PairSet,
    vector: SteeringVector | Intervention,
    *,
    layer: int,
    strength: StrengthLike = 1.0,
    components: int = 2,
    tokens: Tokens | None = None,
    role: str | None = None,
) -> Projection:
    """Read pairs at one layer with and without a vector, and measure what moved.

    Args:
        session: What reads the pairs.
        pairs: The pairs.
        vector: What is added to the stream, at all of its layers below the one that is
            read; of this session's model. Or an intervention, which says how it is
            applied.
        layer: The block after which rows are read.
        strength: How much of the vector, or how many times an intervention's own
            strength.
        components: How many principal components at most.
        tokens: What is read of each side; as for the vector unless given.
        role: Whose turn a side without a prompt is; as for the vector unless given.

    Raises:
        SterError: The vector, a word or a side is refused, the run does not fit, or the
            rows are all alike.
    """
    require_type(pairs, PairSet, "pairs")
    if not isinstance(vector, Intervention):
        vector = Intervention(vector)
    check_components(components)
    layers = check_layers([layer], session.spec.num_hidden_layers)
    applied = vector.at(strength)
    steering = take_steering(applied, session)
    choice = choose_as_trained(session, applied.vector, tokens, role)
    warn_of_prompts(session, applied.vector, pairs)
    reading = plan_pairs(session, pairs, layers, repeats=True, choice=choice)
    _warn_of_layers(session, steering, layer)
    (deltas,) = steering.deltas(partial(_measure_norms, session, pairs, choice))
    if steering.needs_prompt:  # so sides share fewer tokens, or are refused
        reading = plan_pairs(
            session, pairs, layers, repeats=True, choice=choice, deltas=deltas
        )
    unsteered = read_pairs(replace(reading, deltas={}))
    steered = read_pairs(replace(reading, deltas=deltas, label="reading steered pair"))
    found = project_pairs(
        applied,
        layers[0],
        components,
        unsteered=unsteered,
        steered=steered,
        chat_template=session.encoder.chat_template,
    )
    _note_few_components(session, len(found.explained), components)
    return found


def _note_few_components(session: Session, number: int, asked: int) -> None:
    if number < asked:
        session.reporter.note(
            f"these rows vary along {counted(number, 'component')} and no more: "
            f"{asked} were asked for"
        )


def _warn_of_layers(session: Session, steering: Steered, layer: int) -> None:
    """Warn where rows are read before anything is done to them."""
    ((vector,), (applying,), ((strength,),)) = (
        steering.vectors,
        steering.applied,
        steering.strengths,
    )
    first = vector.layers[0]
    if first < layer or applying.does_nothing_at(strength):
        return
    session.reporter.warn(
        f"rows of layer {layer} are read before anything is done there, and the "
        f"vector begins at layer {first}: nothing moves"
    )


def _measure_norms(
    session: Session, pairs: PairSet, choice: ReadingChoice, layers: tuple[int, ...]
) -> Sequence[float]:
    """Measure the mean length of the pairs' rows at layers whose norms are not known.

    Raises:
        SterError: As for ``read_pairs``.
    """
    session.reporter.note(
        "the vector carries no residual norms: n counts in those of these pairs"
    )
    reading = plan_pairs(session, pairs, layers, repeats=True, choice=choice)
    return [float(norm) for norm in read_pairs(reading).mean_norms]
