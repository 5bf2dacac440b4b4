"""What steering adds to the stream of an open checkpoint: the sum of its vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ster.documents.prompt_sets.value import Prompts
from ster.errors import DirectionError, SterError, UsageError, require_type
from ster.runs.reading import plan_reading
from ster.runs.session import Session
from ster.text import counted, one_line
from ster.vectors.metrics import mean_norms
from ster.vectors.norms import scale_rows
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import (
    Strength,
    StrengthLike,
    Strengths,
    take_multipliers,
    take_strength,
)
from ster.workflows.compatibility import check_steering

F32 = NDArray[np.float32]
Weighted = tuple[SteeringVector, StrengthLike]
Steer = SteeringVector | Weighted | Sequence[SteeringVector | Weighted]
# Measures the stream's mean length at each of some layers, which are ascending.
MeasureNorms = Callable[[tuple[int, ...]], Sequence[float]]
LARGEST_NUMBER = float(np.finfo(np.float32).max)
_ONCE = Strength(value=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """Vectors that may steer a model, and how much of each is added.

    Args:
        vectors: The vectors.
        times: What their sum is multiplied by, at least once.
        strengths: For each of ``times`` the strength of each vector.
    """

    vectors: Sequence[SteeringVector]
    times: Sequence[Strength]
    strengths: Sequence[Sequence[Strength]]

    @property
    def unmeasured(self) -> tuple[int, ...]:
        """The layers whose residual norms are asked for and carried by no vector."""
        lacking = {
            layer
            for strengths in self.strengths
            for vector, strength in zip(self.vectors, strengths, strict=True)
            if strength.of_norm and strength.value and vector.residual_norms is None
            for layer in vector.layers
        }
        return tuple(sorted(lacking))

    def deltas(self, measure: MeasureNorms | None = None) -> list[Mapping[int, F32]]:
        """Add up what is to be added after each layer; a layer of zeros is left out.

        Args:
            measure: What measures norms that no vector carries, if it is possible.

        Raises:
            DirectionError: What is to be added is too long, or norms are missing.
        """
        layers = self.unmeasured
        found: Mapping[int, float] = {}
        if layers and measure is not None:
            found = dict(zip(layers, measure(layers), strict=True))
        vectors = [_complete(vector, found) for vector in self.vectors]
        return [
            _sum(zip(vectors, strengths, strict=True)) for strengths in self.strengths
        ]


def take_steering(
    steer: Steer, session: Session, strengths: Strengths | None = None
) -> Steered:
    """Take vectors and strengths; refuse what cannot steer this session's model.

    Each vector is checked, and warned of, once.

    Args:
        steer: One vector or several, each alone or in a tuple with its strength.
        session: Whose stream they are added to.
        strengths: What their sum is multiplied by; 1 if not given.

    Raises:
        DocumentError: A vector is of another model or width.
        LayerError: The model lacks one of its layers.
        UsageError: There is no strength, one is none, or counts in norms twice.
        DirectionError: A strength is not finite.
    """
    is_one = _is_weighted(steer) or not isinstance(steer, Sequence)
    given: Any = [steer] if is_one or isinstance(steer, str) else steer
    parts = [each if _is_weighted(each) else (each, _ONCE) for each in given]
    for vector, _ in parts:
        require_type(vector, SteeringVector, "steer")
        _check(vector, session)
    own = [take_strength(strength) for _, strength in parts]
    times: tuple[Strength, ...] = (_ONCE,)
    if strengths is not None:
        times = take_multipliers(strengths, "strengths")
        if not parts:
            sentence = "strengths need a vector to multiply"
            raise UsageError(sentence, field="strengths")
    vectors = [vector for vector, _ in parts]
    scales = [vector.scale or _ONCE for vector in vectors]
    combined = [[each * strength for each in own] for strength in times]
    for each in combined:  # refused here, before a weight is opened
        _ = [*map(Strength.__mul__, scales, each)]
    return Steered(vectors=vectors, times=times, strengths=combined)


def sum_deltas(
    steer: Steer, session: Session, measure: MeasureNorms | None = None
) -> Mapping[int, F32]:
    """Add up what is to be added after each layer; a layer of zeros is left out.

    Raises:
        SterError: As for ``take_steering`` and ``Steered.deltas``.
    """
    (deltas,) = take_steering(steer, session).deltas(measure)
    return deltas


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
        asked=asked,
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


def _is_weighted(steer: object) -> bool:
    """Tell a vector with its strength from two vectors."""
    return (
        isinstance(steer, tuple)
        and len(steer) == 2
        and isinstance(steer[0], SteeringVector)
        and not isinstance(steer[1], SteeringVector | tuple)
    )


def _check(vector: SteeringVector, session: Session) -> None:
    """Check a vector, and say which one it is where it was read from a file."""
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


def _sum(parts: Iterable[tuple[SteeringVector, Strength]]) -> Mapping[int, F32]:
    deltas: dict[int, F32] = {}
    for vector, strength in parts:
        if not strength.value:
            continue
        scaled = scale_rows(vector.array, strength, vector.residual_norms)
        for layer, row in zip(vector.layers, scaled, strict=True):
            with np.errstate(all="ignore"):  # what overflows is refused below
                deltas[layer] = deltas[layer] + row if layer in deltas else row
    check_lengths(deltas)
    # Adding zero would still turn -0.0 into 0.0.
    return {layer: delta for layer, delta in deltas.items() if delta.any()}


def check_lengths(deltas: Mapping[int, F32]) -> None:
    """Refuse to add what drowns the stream: norms of its rows would be infinite.

    Raises:
        DirectionError: A squared length is not finite in float32.
    """
    for layer, delta in deltas.items():
        squared = float(np.square(delta, dtype=np.float64).sum())
        if not squared <= LARGEST_NUMBER:
            raise DirectionError(
                f"the vector added after layer {layer} is too long",
                "its squared length leaves float32",
                layer=layer,
                found=squared,
                expected=LARGEST_NUMBER,
            )
