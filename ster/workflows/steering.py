"""What steering does to the stream of an open checkpoint, vector by vector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ster.documents.prompt_sets.value import Prompts
from ster.errors import SterError, UsageError, require_type
from ster.layers import name_layers
from ster.runs.reading import ReadingChoice, plan_reading
from ster.runs.session import Session
from ster.stream.changes import Deltas
from ster.text import counted, one_line
from ster.vectors.applying import Applying
from ster.vectors.interventions import Intervention
from ster.vectors.metrics import mean_norms
from ster.vectors.origins import spell_scale, spell_term
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import (
    Strength,
    StrengthLike,
    Strengths,
    take_multipliers,
)
from ster.workflows.compatibility import check_steering
from ster.workflows.interventions import Part, combine

Weighted = tuple[SteeringVector, StrengthLike]
OneSteer = SteeringVector | Intervention | Weighted
Steer = OneSteer | Sequence[OneSteer]
# Measures the stream's mean length at each of some layers, which are ascending.
MeasureNorms = Callable[[tuple[int, ...]], Sequence[float]]
_ONCE = Strength(value=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """Vectors that may steer a model, how each is applied, and how much of it.

    Args:
        vectors: The vectors, at the layers where they are applied.
        applied: How each of them is.
        times: What their strengths are multiplied by, at least once.
        strengths: For each of ``times`` the strength of each vector.
    """

    vectors: Sequence[SteeringVector]
    applied: Sequence[Applying]
    times: Sequence[Strength]
    strengths: Sequence[Sequence[Strength]]

    @property
    def unmeasured(self) -> tuple[int, ...]:
        """The layers whose residual norms are asked for and carried by no vector."""
        lacking = {
            layer
            for strengths in self.strengths
            for vector, strength, applying in self._parts(self.vectors, strengths)
            if _needs_norms(strength, applying) and vector.residual_norms is None
            for layer in vector.layers
        }
        return tuple(sorted(lacking))

    @property
    def needs_prompt(self) -> bool:
        """Whether what is done to a token depends on where its prompt ends."""
        return any(applying.where.needs_prompt for applying in self.applied)

    def deltas(self, measure: MeasureNorms | None = None) -> list[Deltas]:
        """Say what is done after each layer, for each of ``times``.

        Args:
            measure: What measures norms that no vector carries, if it is possible.

        Raises:
            DirectionError: What is to be added is too long, norms are missing, or a
                vector has no direction.
        """
        layers = self.unmeasured
        found: Mapping[int, float] = {}
        if layers and measure is not None:
            found = dict(zip(layers, measure(layers), strict=True))
        vectors = [_complete(vector, found) for vector in self.vectors]
        return [combine(self._parts(vectors, each)) for each in self.strengths]

    def _parts(
        self, vectors: Sequence[SteeringVector], strengths: Sequence[Strength]
    ) -> Iterator[Part]:
        return zip(vectors, strengths, self.applied, strict=True)


def take_steering(
    steer: Steer, session: Session, strengths: Strengths | None = None
) -> Steered:
    """Take vectors and strengths; refuse what cannot steer this session's model.

    Each vector is checked, and warned of, once.

    Args:
        steer: One vector or several, each alone, in a tuple with its strength, or in an
            intervention.
        session: Whose stream they are applied to.
        strengths: What their strengths are multiplied by; 1 if not given.

    Raises:
        DocumentError: A vector is of another model or width.
        LayerError: The model lacks one of its layers.
        UsageError: There is no strength, one is none, counts in norms twice, or is none
            for how a vector is applied.
        DirectionError: A strength is not finite.
    """
    parts = _listed(steer)
    for part in parts:
        _check(part, session)
    own = [part.strength for part in parts]
    times: tuple[Strength, ...] = (_ONCE,)
    if strengths is not None:
        times = take_multipliers(strengths, "strengths")
        if not parts:
            sentence = "strengths need a vector to multiply"
            raise UsageError(sentence, field="strengths")
    combined = [[each * strength for each in own] for strength in times]
    for each in combined:  # refused here, before a weight is opened
        for part, strength in zip(parts, each, strict=True):
            _ = (part.vector.scale or _ONCE) * strength
            part.applying.check(strength)
    num_layers = session.spec.num_hidden_layers
    return Steered(
        vectors=[part.spread(num_layers) for part in parts],
        applied=[part.applying for part in parts],
        times=times,
        strengths=combined,
    )


def sum_deltas(
    steer: Steer, session: Session, measure: MeasureNorms | None = None
) -> Deltas:
    """Say what is done after each layer.

    Raises:
        SterError: As for ``take_steering`` and ``Steered.deltas``.
    """
    (deltas,) = take_steering(steer, session).deltas(measure)
    return deltas


def describe_steering(steer: Steer, session: Session) -> tuple[str, ...]:
    """Say what is done with each vector, for a document of what was steered.

    Args:
        steer: What ``take_steering`` took.
        session: Whose stream they are applied to.
    """
    num_layers = session.spec.num_hidden_layers
    return tuple(_describe(each, num_layers) for each in _listed(steer))


def norms_of(
    session: Session,
    prompts: Prompts,
    asked: Sequence[str | None] | None = None,
) -> MeasureNorms:
    """Return what measures the mean length of the stream at the prompts' last tokens.

    Args:
        session: What reads them, unsteered.
        prompts: The prompts.
        asked: What each prompt answers, if anything.
    """
    return partial(_measure, session, prompts, asked)


def _measure(
    session: Session,
    prompts: Prompts,
    asked: Sequence[str | None] | None,
    layers: tuple[int, ...],
) -> list[float]:
    """Read the prompts and say so; nothing of the rows stays.

    Raises:
        SterError: A prompt or weight is refused, or the run does not fit.
    """
    reading = plan_reading(
        session,
        prompts,
        layers,
        repeats=True,
        choice=ReadingChoice(asked=asked),
        label="measuring residual norms on prompt",
    )
    session.reporter.note(
        "measuring residual norms on this run's "
        f"{counted(len(reading.prompts), 'prompt')}: a vector carries none"
    )
    total = np.zeros(len(layers))
    for _, (rows,) in reading.waves():
        total += mean_norms(rows) * len(rows)
    return [float(norm) for norm in total / len(reading.prompts)]


def _listed(steer: Steer) -> list[Intervention]:
    """Take one or several, in their order."""
    is_one = _is_weighted(steer) or not isinstance(steer, Sequence)
    given: Any = [steer] if is_one or isinstance(steer, str) else steer
    return [_take(each) for each in given]


def _is_weighted(steer: object) -> bool:
    """Tell a vector with its strength from two vectors."""
    return (
        isinstance(steer, tuple)
        and len(steer) == 2
        and isinstance(steer[0], SteeringVector)
        and not isinstance(steer[1], SteeringVector | tuple)
    )


def _take(steer: Any) -> Intervention:  # noqa: ANN401 - whatever was given
    """Take a vector, alone or with its strength, as what adds it to all tokens."""
    if isinstance(steer, Intervention):
        return steer
    if _is_weighted(steer):
        vector, strength = steer
        return Intervention(vector, strength)
    require_type(steer, SteeringVector, "steer")
    return Intervention(steer)


def _describe(part: Intervention, num_hidden_layers: int) -> str:
    """Write a vector, where it is applied, and how if it is not just added."""
    vector, strength = part.spread(num_hidden_layers), part.strength
    term = spell_term(vector.trait_name, vector.method, vector.metadata)
    times = "" if strength == _ONCE else f"{spell_scale(strength)} × "
    how = replace(part.applying, layers=None).remark
    remark = f" ({how})" if how else ""
    return f"{times}{term} at {name_layers(vector.layers)}{remark}"


def _needs_norms(strength: Strength, applying: Applying) -> bool:
    """Tell whether anything that is done counts in residual norms."""
    if applying.does_nothing_at(strength):
        return False
    below = applying.below
    return strength.of_norm or (below is not None and below.of_norm)


def _check(part: Intervention, session: Session) -> None:
    """Check a vector, and say which one it is where it was read from a file."""
    vector = part.vector
    try:
        check_steering(vector, session)
    except SterError as error:
        if vector.source is not None:
            error.path = vector.source
            error.causes = (*error.causes, f"it is {one_line(vector.source)}")
        raise


def _complete(vector: SteeringVector, norms: Mapping[int, float]) -> SteeringVector:
    """Give a vector the norms of its layers, if it has none and they were measured."""
    if vector.residual_norms is not None or not norms.keys() >= {*vector.layers}:
        return vector
    return vector.with_norms(norms[layer] for layer in vector.layers)
