"""What steering adds to the stream of an open checkpoint: the sum of its vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ster.errors import DirectionError, UsageError, require_type
from ster.runs.session import Session
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import Strengths, take_multipliers
from ster.workflows.compatibility import check_steering

F32 = NDArray[np.float32]
Steer = SteeringVector | Sequence[SteeringVector]
LARGEST_NUMBER = float(np.finfo(np.float32).max)


def sum_deltas(steer: Steer, session: Session) -> Mapping[int, F32]:
    """Add up what is to be added after each layer; a layer of zeros is left out.

    Raises:
        DocumentError: A vector is of another model or width.
        LayerError: The model lacks one of its layers.
        DirectionError: What is to be added is too long.
    """
    return _sum(_take(steer, session))


def _take(steer: Steer, session: Session) -> list[SteeringVector]:
    """Take one vector or several; refuse what cannot steer this session's model."""
    is_several = isinstance(steer, Sequence) and not isinstance(steer, str)
    vectors: Any = steer if is_several else [steer]
    for vector in vectors:
        require_type(vector, SteeringVector, "steer")
        check_steering(vector, session)
    return [*vectors]


def _sum(vectors: Sequence[SteeringVector]) -> Mapping[int, F32]:
    deltas: dict[int, F32] = {}
    for vector in vectors:
        for layer in vector.layers:
            direction = vector.direction(layer)
            with np.errstate(all="ignore"):  # what overflows is refused below
                deltas[layer] = (
                    deltas[layer] + direction if layer in deltas else direction
                )
    check_lengths(deltas)
    # Adding zero would still turn -0.0 into 0.0.
    return {layer: delta for layer, delta in deltas.items() if delta.any()}


def sum_at_strengths(
    steer: Steer, strengths: Strengths | None, session: Session
) -> tuple[Sequence[float | None], Sequence[Mapping[int, F32]]]:
    """Add up vectors at several strengths; each is checked, and warned of, once.

    Args:
        steer: The vectors.
        strengths: What they are multiplied by; 1 if not given.
        session: Whose stream they are added to.

    Returns:
        The strengths, None where nothing is steered, and what is added at each.

    Raises:
        UsageError: There is no strength or one is no number.
        SterError: As for ``sum_deltas``.
    """
    vectors = _take(steer, session)
    if strengths is None:
        return [1.0 if vectors else None], [_sum(vectors)]
    times = take_multipliers(strengths, "strengths")
    if not vectors:
        sentence = "strengths need a vector to multiply"
        raise UsageError(sentence, field="strengths")
    return times, [_sum([each * strength for each in vectors]) for strength in times]


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
