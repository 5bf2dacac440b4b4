"""Principal components of a few rows of a wide stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ster.errors import DirectionError

F64 = NDArray[np.float64]

# What is smaller than this share of the largest variance is rounding of the products,
# and differences that are smaller than this share of the rows are rounding of the mean.
_NOTHING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Components:
    """The axes along which rows differ most.

    Args:
        mean: Of the rows, (hidden_size,).
        axes: Of length 1 and at right angles, strongest first, (num_components,
            hidden_size). Of the two directions of an axis it is that in which its
            largest part is positive, so that equal rows have equal axes.
        explained: The share of the rows' variance along each, (num_components,).
    """

    mean: F64
    axes: F64
    explained: F64

    def coordinates(self, rows: NDArray[np.floating]) -> F64:
        """Place rows on the axes, (num_rows, num_components)."""
        placed: F64 = (rows.astype(np.float64) - self.mean) @ self.axes.T
        return placed


def principal_components(rows: NDArray[np.floating], number: int) -> Components:
    """Find the axes along which rows differ most, in f64.

    Args:
        rows: (num_rows, hidden_size).
        number: How many axes at most; there are fewer where the rows span fewer, and
            none where they are all alike.

    Raises:
        DirectionError: There are fewer than two rows.
    """
    if len(rows) < 2:
        raise DirectionError("principal components need at least two rows")
    wide = rows.astype(np.float64)
    mean = wide.mean(axis=0)
    centred = wide - mean
    # The smaller of both tables of products has all that is not zero.
    few = len(rows) <= rows.shape[1]
    products = centred @ centred.T if few else centred.T @ centred
    variances, vectors = np.linalg.eigh(products)
    strongest = np.argsort(variances)[::-1][:number]
    least = max(_NOTHING * variances[-1], _NOTHING**2 * float(np.sum(wide**2)))
    strongest = strongest[variances[strongest] > least]
    axes = vectors[:, strongest].T @ centred if few else vectors[:, strongest].T
    axes = axes / np.linalg.norm(axes, axis=1, keepdims=True)
    largest = np.abs(axes).argmax(axis=1)
    axes = axes * np.sign(axes[np.arange(len(axes)), largest])[:, None]
    total = float(np.sum(centred**2)) or 1.0
    return Components(
        mean=mean,
        axes=axes,
        explained=np.sum((centred @ axes.T) ** 2, axis=0) / total,
    )
