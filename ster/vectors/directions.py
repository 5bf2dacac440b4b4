"""Directions fitted to contrastive rows: pure functions, all layers of a model at once.

Rows are f32 (num_pairs, num_layers, hidden_size), positive and negative sides alike.
Every fitted direction has length 1. Each layer is fitted on its own contiguous copy,
which stays in the cache over hundreds of steps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ster.errors import DirectionError
from ster.vectors.logistic_regression import fit_logistic_regression
from ster.vectors.methods import ALL_METHODS, parse_method

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

NO_DIRECTION = "training produced a zero or non-finite direction"
_ALIKE = (
    "both sides are alike at a layer, or some pairs undo others: each pair has to "
    "differ in the trait, the same way round"
)
_POWER_ITERATIONS = 64
_DESCENT_STEPS = 300
_RATE = 0.1
_RATE_DECAY = 0.01
_WEIGHT_DECAY = 1e-4
# Of squared lengths along two axes; closer ones are equal but for rounding.
_EQUAL = 1e-9


def fit_directions(method: str, positive: F32, negative: F32) -> F32:
    """Fit one unit direction for each layer, towards the positive side.

    Args:
        method: ``caa`` (mean difference), ``pca`` (first component of the centred
            differences), ``logistic`` (300 steps of a probe without bias), ``logreg``
            (converged logistic regression of standardised rows) or ``pca-uncentred``
            (first component of the differences as they are).
        positive: Rows of the positive sides, (num_pairs, num_layers, hidden_size).
        negative: Rows of the negative sides, pair by pair.

    Returns:
        (num_layers, hidden_size) f32.

    Raises:
        UsageError: There is no such method.
        DirectionError: The rows are empty or do not match, or there is nothing to
            find because both sides are alike.
    """
    fit = _FITS[parse_method(method)]
    check_rows(positive, negative)
    directions = np.empty(positive.shape[1:], np.float32)
    # Threads of BLAS wait for each other longer than a small system takes to solve.
    cores = 1 if fit in _SOLVING else None
    # What overflows becomes a direction that is not finite, and is refused.
    with threadpool_limits(cores, user_api="blas"), np.errstate(all="ignore"):
        for layer in range(len(directions)):
            sides = positive[:, layer], negative[:, layer]
            directions[layer] = _unit(fit(*map(np.ascontiguousarray, sides)))
    return directions


def check_rows(positive: F32, negative: F32) -> None:
    """Refuse rows that do not match pair by pair.

    Raises:
        DirectionError: There are none, their numbers or sizes differ, or a value is
            not finite.
    """
    if len(positive) != len(negative) or not len(positive):
        raise DirectionError(
            "training requires the same non-zero number of positive and negative "
            "examples"
        )
    if not positive.size or not negative.size:
        raise DirectionError("activation vectors are empty")
    alike = positive.ndim == 3 and positive.shape == negative.shape
    if not (alike and np.isfinite(positive).all() and np.isfinite(negative).all()):
        raise DirectionError(
            "activation vectors must have one finite, consistent width"
        )


def _unit(direction: NDArray[np.floating]) -> NDArray[np.floating]:
    length = np.linalg.norm(direction.astype(np.float64))
    if not (length > 0 and np.isfinite(length)):
        raise DirectionError(NO_DIRECTION, *([] if length else [_ALIKE]))
    return direction / length


def _mean_difference(positive: F32, negative: F32) -> F64:
    mean: F64 = np.mean(positive, 0, dtype="f8") - np.mean(negative, 0, dtype="f8")
    return mean


def _first_component(positive: F32, negative: F32) -> F64:
    """Find where the differences vary most, by power iteration.

    The sign is the one that points towards their mean. The iteration starts at the mean
    too, so that the result does not depend on chance.
    """
    differences = positive - negative
    mean = np.mean(differences, 0, dtype="f8")
    centred = differences - mean.astype(np.float32)
    direction = _unit_or_first_axis(mean).astype(np.float32)
    for _ in range(_POWER_ITERATIONS):
        direction = _unit_or_first_axis((centred @ direction) @ centred)
    oriented = -direction if direction @ mean < 0 else direction
    return oriented.astype(np.float64)


def _unit_or_first_axis(vector: NDArray[np.floating]) -> NDArray[np.floating]:
    """Normalise; a vector of length zero becomes the first axis."""
    length = np.linalg.norm(vector.astype(np.float64))
    if length == 0:
        axis = np.zeros_like(vector)
        axis[0] = 1
        return axis
    return (vector / length).astype(vector.dtype)


def _probe(positive: F32, negative: F32) -> F32:
    """Descend the logistic loss of telling the sides apart, without a bias."""
    rows = np.concatenate([positive, negative])
    labels = np.repeat(np.array([1, 0], np.float32), [len(positive), len(negative)])
    weights = np.zeros(rows.shape[1], np.float32)
    for step in range(_DESCENT_STEPS):
        errors = 1 / (1 + np.exp(-(rows @ weights))) - labels
        gradient = (errors @ rows) / np.float32(len(rows))
        rate = np.float32(_RATE / (1 + _RATE_DECAY * step))
        weights -= rate * (gradient + np.float32(_WEIGHT_DECAY) * weights)
    return weights


def _longest_axis(positive: F32, negative: F32) -> F64:
    """Find along which axis the differences, not centred, are longest.

    It points to the side of their mean. Of axes that are equally long it is the one
    nearest to the mean.
    """
    differences = positive.astype(np.float64) - negative
    mean: F64 = differences.mean(axis=0)
    if not differences.any():
        return mean
    few = len(differences) < len(mean)
    products = differences @ differences.T if few else differences.T @ differences
    lengths, vectors = np.linalg.eigh(products)
    longest = vectors[:, lengths >= lengths[-1] * (1 - _EQUAL)]
    axes, _ = np.linalg.qr(differences.T @ longest if few else longest)
    shares = axes.T @ mean
    if np.abs(shares).max() <= _EQUAL * np.linalg.norm(mean):
        shares = np.eye(1, len(shares))[0]  # none is nearer than another
    direction: F64 = axes @ shares
    return direction


_FITS: dict[str, Callable[[F32, F32], NDArray[np.floating]]] = dict(
    zip(
        ALL_METHODS,
        (
            _mean_difference,
            _first_component,
            _probe,
            fit_logistic_regression,
            _longest_axis,
        ),
        strict=True,
    )
)
_SOLVING = (fit_logistic_regression, _longest_axis)
