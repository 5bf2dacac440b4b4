"""How well a direction tells the sides of pairs apart: pure functions of scores.

A score is a row's product with a direction, in f64: residual streams carry a few very
large values, and a margin is the small difference of two scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ster.documents.float32 import shortest
from ster.errors import DirectionError

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

RANDOM_DIRECTIONS = 200
RANDOM_SEED = 0
_Z_95 = 1.959963984540054


def score_rows(rows: F32, directions: F32) -> F64:
    """Project rows on their layer's direction.

    Args:
        rows: (num_rows, num_layers, hidden_size).
        directions: (num_layers, hidden_size), of any length.

    Returns:
        (num_rows, num_layers).

    Raises:
        DirectionError: The hidden sizes differ.
    """
    width, row_width = directions.shape[-1], rows.shape[-1]
    if width != row_width:
        raise DirectionError(
            f"direction width {width} does not match activation width {row_width}",
            found=width,
            expected=row_width,
        )
    scores = [
        rows[:, layer].astype(np.float64) @ direction.astype(np.float64)
        for layer, direction in enumerate(directions)
    ]
    return np.stack(scores, axis=-1)


def accuracy(margins: F64) -> F64:
    """Return the share of pairs whose positive side scores higher, by layer.

    Args:
        margins: Positive less negative score, (num_pairs, num_layers).
    """
    share: F64 = np.mean(margins > 0, axis=0)
    return share


def mean_margins(margins: F64, layers: Sequence[int]) -> tuple[float, ...]:
    """Return the mean margin of each layer, as it is printed.

    Args:
        margins: Positive less negative score, (num_pairs, num_layers).
        layers: The layer of each column, for sentences.

    Raises:
        DirectionError: One leaves float32.
    """
    with np.errstate(over="ignore"):
        means = tuple(map(shortest, margins.mean(axis=0)))
    for layer, mean in zip(layers, means, strict=True):
        if not math.isfinite(mean):
            sentence = f"the margin at layer {layer} is not finite"
            raise DirectionError(sentence, layer=layer, found=mean)
    return means


def effect_size(positive: F64, negative: F64) -> float | None:
    """Return the distance of the sides' means in units of their spread.

    Args:
        positive: Scores of one layer's positive sides.
        negative: Scores of the negative sides.

    Returns:
        None where that is no normal f32: the sides of a single pair have no spread.
    """
    means = positive.mean(), negative.mean()
    deviations = np.concatenate([positive - means[0], negative - means[1]])
    with np.errstate(all="ignore"):
        size = np.float32((means[0] - means[1]) / np.sqrt(np.mean(deviations**2)))
    if not np.isfinite(size) or abs(size) < np.finfo(np.float32).tiny:
        return None
    return shortest(size)


def accuracy_interval(share: float, num_pairs: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of an accuracy.

    Source: Wilson 1927; it stays within 0 and 1, also for few pairs.
    """
    spread = _Z_95**2 / num_pairs
    centre = (share + spread / 2) / (1 + spread)
    root = math.sqrt(share * (1 - share) * spread + spread**2 / 4)
    half = root / (1 + spread)
    return float(max(0.0, centre - half)), float(min(1.0, centre + half))


def margin_interval(margins: F64) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of the mean of one layer's margins.

    Source: Student 1908. None for one pair, which has no spread.
    """
    freedom = len(margins) - 1
    if freedom < 1:
        return None
    half = _t_95(freedom) * float(margins.std(ddof=1)) / math.sqrt(len(margins))
    mean = float(margins.mean())
    return mean - half, mean + half


def _t_95(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's distribution, within 1 %.

    Source: the expansion of Cornish and Fisher, which fails below three.
    """
    if freedom < 3:
        return (12.706, 4.303)[freedom - 1]
    z = _Z_95
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def random_margins(positive: F32, negative: F32) -> F64:
    """Return what 95 % of random directions of length 1 stay below, by layer.

    The margin of one, positive or negative, is a share of the sides' mean difference:
    its product with a direction, which for many dimensions is normally distributed.

    Args:
        positive: Rows of the positive sides, (num_pairs, num_layers, hidden_size).
        negative: Rows of the negative sides.

    Returns:
        (num_layers,); margins between minus this and this are those of chance.
    """
    lengths = [
        np.linalg.norm(
            (positive[:, layer].astype(np.float64) - negative[:, layer]).mean(axis=0)
        )
        for layer in range(positive.shape[1])
    ]
    return _Z_95 * np.array(lengths) / math.sqrt(positive.shape[-1])


def random_accuracies(positive: F32, negative: F32) -> F64:
    """Return the accuracy of random directions, the same ones at every call.

    Args:
        positive: Rows of the positive sides, (num_pairs, num_layers, hidden_size).
        negative: Rows of the negative sides.

    Returns:
        (RANDOM_DIRECTIONS, num_layers).
    """
    generator = np.random.default_rng(RANDOM_SEED)
    shape = positive.shape[-1], RANDOM_DIRECTIONS
    directions = generator.standard_normal(shape, dtype=np.float32)
    shares = [
        np.mean((positive[:, layer] - negative[:, layer]) @ directions > 0, axis=0)
        for layer in range(positive.shape[1])
    ]
    return np.stack(shares, axis=-1)


def mean_norms(rows: F32) -> F64:
    """Return the mean length of each layer's rows, (num_layers,)."""
    norms = [
        np.linalg.norm(rows[:, layer].astype(np.float64), axis=-1).mean()
        for layer in range(rows.shape[1])
    ]
    return np.array(norms)
