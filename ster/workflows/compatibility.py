"""What steering vectors add to a session's stream, and whether they suit its model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ster.errors import DirectionError, DocumentError, require_type
from ster.layers import check_layers
from ster.runs.session import Session
from ster.text import quoted
from ster.vectors.steering import SteeringVector

F32 = NDArray[np.float32]
Steer = SteeringVector | Sequence[SteeringVector]
LARGEST_NUMBER = float(np.finfo(np.float32).max)

# Two labels for one encoding.
_RAW_TEXT = ("absent", "off")


def check_measured(vector: SteeringVector, session: Session) -> None:
    """Refuse to measure a vector on a model that it does not belong to.

    Raises:
        DocumentError: It is of another model or hidden size.
        LayerError: The model lacks one of its layers.
    """
    _check(vector, session, "artifact model {} does not match runtime model {}")


def check_steering(vector: SteeringVector, session: Session) -> None:
    """Refuse to steer a model with a vector that does not belong to it.

    Raises:
        DocumentError: It is of another model or hidden size.
        LayerError: The model lacks one of its layers.
    """
    _check(vector, session, "artifact was trained for model {}, current model is {}")


def _check(vector: SteeringVector, session: Session, sentence: str) -> None:
    current = session.files.model
    if not _is_same_model(vector.model, current):
        raise DocumentError(sentence.format(quoted(vector.model), quoted(current)))
    _check_shape(vector, session)
    _warn(vector, session)


def _is_same_model(one: str, other: str) -> bool:
    """Tell whether two names are equal, or two spellings of one directory."""
    if one == other:
        return True
    try:
        return os.path.isdir(one) and os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def _check_shape(vector: SteeringVector, session: Session) -> None:
    width = session.spec.hidden_size
    if vector.hidden_size != width:
        raise DocumentError(
            f"artifact width {vector.hidden_size} does not match model width {width}"
        )
    check_layers(vector.layers, session.spec.num_hidden_layers)


def _warn(vector: SteeringVector, session: Session) -> None:
    """Warn of another encoding or precision; an artifact that names none passes."""
    trained, label = vector.chat_template, session.encoder.chat_template
    alike = trained == label or (trained in _RAW_TEXT and label in _RAW_TEXT)
    if trained is not None and not alike:
        session.reporter.warn(
            f"this direction was trained with chat template {trained} and this run "
            f"encodes {label}, so the number below describes a format it was not "
            "trained in"
        )
    if vector.precision not in (None, session.precision):
        session.reporter.warn(
            f"this direction was trained at precision {vector.precision} and this run "
            f"maps the base weights at {session.precision}, so it is being read in a "
            "different space than it was fitted in"
        )


def sum_deltas(steer: Steer, session: Session) -> Mapping[int, F32]:
    """Sum the vectors of each layer; a layer whose sum is all zeros is left out.

    Raises:
        DocumentError: A vector is of another model or hidden size.
        LayerError: The model lacks one of its layers.
        DirectionError: A sum is too long.
    """
    deltas: dict[int, F32] = {}
    is_several = isinstance(steer, Sequence) and not isinstance(steer, str)
    vectors: Any = steer if is_several else [steer]
    for vector in vectors:
        require_type(vector, SteeringVector, "steer")
        check_steering(vector, session)
        for layer in vector.layers:
            direction = vector.direction(layer)
            with np.errstate(all="ignore"):  # what overflows is refused below
                deltas[layer] = (
                    deltas[layer] + direction if layer in deltas else direction
                )
    check_lengths(deltas)
    # Adding zero would still turn -0.0 into 0.0.
    return {layer: delta for layer, delta in deltas.items() if delta.any()}


def check_lengths(deltas: Mapping[int, F32]) -> None:
    """Refuse vectors so long that the norms of steered rows would be infinite.

    Raises:
        DirectionError: A squared length is not finite in float32.
    """
    for layer, delta in deltas.items():
        if not np.square(delta, dtype=np.float64).sum() <= LARGEST_NUMBER:
            raise DirectionError(
                f"the vector added after layer {layer} is too long",
                "its squared length leaves float32",
            )
