"""L2 logistic regression of which side a row is from, fitted until it has converged.

The loss is the sum over rows of log(1 + exp(-sign · (w·z + b))), plus |w|² / 2, for
rows z that were standardised feature by feature. The penalty makes it finite where the
sides can be told apart, and its minimum is unique. It is found by Newton's method in
whichever space is smaller: the features, or the rows, whose combinations hold every
minimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

_MAX_STEPS = 100
# Of the gradient, per row; the smallest that f64 reaches is about a thousandth of it.
_CONVERGED = 1e-11
# Standardised means that differ by less are alike but for rounding.
_ALIKE = 1e-10
_SMALLEST_SHARE = 2.0**-30


def fit_logistic_regression(positive: F32, negative: F32) -> F64:
    """Fit a direction to the rows of one layer.

    Args:
        positive: Rows of the positive sides, (num_pairs, hidden_size).
        negative: Rows of the negative sides.

    Returns:
        The weights in the units of the rows, (hidden_size,); zeros if nothing tells
        the sides apart.
    """
    rows = np.concatenate([positive, negative]).astype(np.float64)
    targets = np.repeat([1.0, 0.0], [len(positive), len(negative)])
    spread = _spread(rows)
    rows = (rows - rows.mean(axis=0)) / spread
    slope: F64 = (targets - 0.5) @ rows
    if np.abs(slope).max() <= _ALIKE * len(rows):
        return np.zeros_like(slope)
    num_rows, width = rows.shape
    if num_rows > width:
        return _minimize(_Problem(map=rows, left=rows.T, targets=targets)) / spread
    gram = rows @ rows.T
    combination = _minimize(_Problem(map=gram, left=None, targets=targets))
    weights: F64 = (combination @ rows) / spread
    return weights


def _spread(rows: F64) -> F64:
    """Return each feature's standard deviation, and 1 for one that is constant.

    Constant is what varies no more than the rounding of its variance and its mean.
    """
    variance, mean = rows.var(axis=0), rows.mean(axis=0)
    rounding = len(rows) * np.finfo(np.float64).eps
    constant = variance <= rounding * variance + (rounding * mean) ** 2
    return np.where(constant, 1.0, np.sqrt(variance))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """What is minimised over ``point``: coefficients, and the intercept behind them.

    Args:
        map: From coefficients to a value for each row, (num_rows, num_coefficients).
        left: From a slope by the rows' values to one by weights, or None where the
            coefficients are those of the rows: then a slope by rows is one already.
        targets: 1 for a row of a positive side, 0 for another.
    """

    map: F64
    left: F64 | None
    targets: F64

    def values(self, point: F64) -> F64:
        """Return w·z + b of each row."""
        values: F64 = self.map @ point[:-1] + point[-1]
        return values

    def loss(self, point: F64) -> float:
        """Return what is to be smallest."""
        values, found = self.values(point), point[:-1]
        penalty = found @ (found if self.left is not None else self.map @ found)
        misses = np.logaddexp(0, np.where(self.targets > 0, -values, values))
        return float(misses.sum() + penalty / 2)

    def fall(self, point: F64) -> tuple[F64, F64]:
        """Return minus the slope of the loss at a point, and its curvature.

        Among combinations of rows both lack the factor that they have in common.
        """
        chances = 1 / (1 + np.exp(-self.values(point)))
        errors = self.targets - chances
        bend = chances * (1 - chances)
        curved = bend[:, None] * self.map
        size = len(point) - 1
        hessian = np.empty((size + 1, size + 1))
        hessian[:size, :size] = curved if self.left is None else self.left @ curved
        hessian[:size, :size].flat[:: size + 1] += 1
        hessian[:size, size] = bend if self.left is None else self.left @ bend
        hessian[size, :size] = curved.sum(axis=0)
        hessian[size, size] = bend.sum()
        pull = errors if self.left is None else self.left @ errors
        return np.append(pull - point[:-1], errors.sum()), hessian


def _minimize(problem: _Problem) -> F64:
    """Find the coefficients by Newton's method, each step cut until it descends."""
    point = np.zeros(problem.map.shape[1] + 1)
    loss = problem.loss(point)
    for _ in range(_MAX_STEPS):
        fall, hessian = problem.fall(point)
        if np.abs(fall).max() <= _CONVERGED * len(problem.targets):
            break
        step = np.linalg.solve(hessian, fall)
        share = 1.0
        while (lower := problem.loss(point + share * step)) > loss:
            share /= 2
            if share < _SMALLEST_SHARE:  # what is left is rounding
                return point[:-1]
        point, loss = point + share * step, lower
    return point[:-1]
