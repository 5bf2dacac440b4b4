"""Vectors, strengths and ways to apply them -> what is done to a stream, by layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ster.errors import DirectionError
from ster.stream.changes import Add, Change, Delta, Deltas, Move, changes_of
from ster.stream.where import EVERYWHERE
from ster.vectors.applying import ADDING, Applying, formula
from ster.vectors.interventions import Intervention
from ster.vectors.norms import scale_rows
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import Strength

F32 = NDArray[np.float32]
Part = tuple[SteeringVector, Strength, Applying]
LARGEST_NUMBER = float(np.finfo(np.float32).max)


def combine(parts: Iterable[Part]) -> Deltas:
    """Do one thing after the other; vectors that are added in a row are summed.

    Args:
        parts: Vectors at the layers where they are applied, how much of each, and how.

    Returns:
        A layer where nothing is done is left out.

    Raises:
        DirectionError: What is added is too long, norms are missing, or a vector has no
            direction at a layer where it needs one.
    """
    done: dict[int, list[Change]] = {}
    for vector, strength, applying in parts:
        if applying.does_nothing_at(strength):
            continue
        for layer, changes in _apply(vector, strength, applying).items():
            for change in changes:
                _append(done.setdefault(layer, []), change)
    deltas = {layer: tuple(changes) for layer, changes in done.items()}
    check_lengths(deltas)
    # Adding zero would still turn -0.0 into 0.0.
    kept = {layer: tuple(filter(_does, each)) for layer, each in deltas.items()}
    return {layer: _simplify(changes) for layer, changes in kept.items() if changes}


def trial_deltas(
    vector: SteeringVector,
    strength: Strength,
    norms: Sequence[float],
    applying: Applying,
    num_hidden_layers: int,
) -> Deltas:
    """Say what a vector does at one strength of a trial.

    Args:
        vector: The vector.
        strength: The strength.
        norms: What a strength in norms is multiplied by, one for each of its layers.
        applying: How the vector is applied.
        num_hidden_layers: How many blocks the model has.

    Raises:
        SterError: As for ``combine``, or the model or vector lacks a layer.
    """
    known = tuple(norms)
    if applying == ADDING:  # these norms as they are, not in the digits of f32
        scaled = scale_rows(vector.array, strength, known)
        deltas = dict(zip(vector.layers, scaled, strict=True))
        check_lengths(deltas)
        return deltas
    part = Intervention.applied(vector.with_norms(known), strength, applying)
    return combine([(part.spread(num_hidden_layers), strength, applying)])


def check_lengths(deltas: Deltas) -> None:
    """Refuse to add what drowns the stream: norms of its rows would be infinite.

    Raises:
        DirectionError: A squared length is not finite in float32.
    """
    for layer, delta in deltas.items():
        for change in changes_of(delta):
            check_length(layer, _squared(change))


def check_length(layer: int, squared: float) -> None:
    """Refuse to add a vector of such a squared length.

    Raises:
        DirectionError: It is not finite in float32.
    """
    if not squared <= LARGEST_NUMBER:
        raise DirectionError(
            f"the vector added after layer {layer} is too long",
            "its squared length leaves float32",
            layer=layer,
            found=squared,
            expected=LARGEST_NUMBER,
        )


def _apply(
    vector: SteeringVector, strength: Strength, applying: Applying
) -> Mapping[int, Sequence[Change]]:
    """Say what is done with one vector, layer by layer."""
    norms, where = vector.residual_norms, applying.where
    if applying.is_plain:
        scaled = scale_rows(vector.array, strength, norms)
        rows = zip(vector.layers, scaled, strict=True)
        return {layer: [Add(vector=row, where=where)] for layer, row in rows}
    lengths = np.linalg.norm(vector.array.astype(np.float64), axis=1)
    amounts = scale_rows(lengths.astype(np.float32)[:, None], strength, norms)[:, 0]
    belows = _thresholds(applying, norms, len(lengths))
    made: dict[int, list[Change]] = {}
    for number, layer in enumerate(vector.layers):
        direction = _direction(vector, layer, lengths[number])
        made[layer] = [
            Move(
                direction=direction,
                below=belows[number],
                keep_norm=applying.keep_norm,
                where=where,
                **numbers,
            )
            for numbers in formula(applying.how, float(amounts[number]), strength.value)
        ]
    return made


def _thresholds(
    applying: Applying, norms: Sequence[float] | None, num_layers: int
) -> list[float]:
    if applying.below is None:
        return [np.inf] * num_layers
    ones = np.ones((num_layers, 1), np.float32)
    known = None if norms is None else tuple(norms)
    return [float(each) for each in scale_rows(ones, applying.below, known)[:, 0]]


def _direction(vector: SteeringVector, layer: int, length: float) -> F32:
    if not length:
        raise DirectionError(
            f"the vector is all zeros at layer {layer}, so it has no direction there",
            layer=layer,
        )
    unit: F32 = (vector.direction(layer) / length).astype(np.float32)
    return unit


def _append(changes: list[Change], change: Change) -> None:
    """Put a change behind others; a vector is added to one that went before it."""
    last = changes[-1] if changes else None
    if isinstance(change, Add) and isinstance(last, Add) and change.where == last.where:
        with np.errstate(all="ignore"):  # what overflows is refused later
            total = last.vector + change.vector
        changes[-1] = Add(vector=total, where=change.where)
        return
    changes.append(change)


def _does(change: Change) -> bool:
    return isinstance(change, Move) or bool(change.vector.any())


def _simplify(changes: tuple[Change, ...]) -> Delta:
    """Write a vector that is added to all rows as itself."""
    (first, *others) = changes
    if isinstance(first, Add) and first.where == EVERYWHERE and not others:
        return first.vector
    return changes


def _squared(change: Change) -> float:
    if isinstance(change, Add):
        return float(np.square(change.vector, dtype=np.float64).sum())
    return change.offset**2
