"""Rows moved along a direction, in numpy. Read it beside ``mlx.moves``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ster.decoder.numpy.parts import F32
from ster.stream.changes import Moves
from ster.stream.packing import Ints


def move(hidden: F32, moves: Moves[Any], which: Ints | None) -> None:
    """Move rows where they stand, as ``stream.changes.Move`` says.

    Args:
        hidden: The rows, (num_rows, hidden_size).
        moves: The moves.
        which: The move of each row; None is the first for all.
    """
    rows = np.zeros(1, np.int64) if which is None else which  # one row goes with all
    directions = moves.directions[rows]
    offset, slope, low, high, below = moves.numbers[rows].T
    # BLAS multiplies with one vector.
    several = len(directions) > 1
    projection = _product(hidden, directions) if several else hidden @ directions[0]
    shift = np.clip(offset + slope * projection, low, high)
    shift[projection >= below] = 0
    if moves.keep_norm is None:
        hidden += shift[:, None] * directions
        return
    before = _product(hidden, hidden)
    hidden += shift[:, None] * directions
    after = _product(hidden, hidden)
    kept = (moves.keep_norm[rows, 0] > 0) & (shift != 0) & (after > 0)
    scale = np.sqrt(before / np.where(kept, after, 1), dtype=np.float32)
    hidden *= np.where(kept, scale, np.float32(1))[:, None]


def _product(one: F32, other: F32) -> F32:
    """Multiply rows with rows, (num_rows,)."""
    product: F32 = np.einsum("ij,ij->i", one, other)
    return product
