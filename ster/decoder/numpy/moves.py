"""Rows moved along a direction, in numpy. Read it beside ``mlx.moves``."""

from __future__ import annotations

from typing import Any, Literal

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
    rows = np.zeros(1, np.int64) if which is None else which  # one goes with all rows
    # A stream lies column by column, and what is added to it has to lie the same way.
    columns = hidden.T
    order: Literal["C", "F"] = "C" if hidden.strides[0] < hidden.strides[1] else "F"
    directions = np.array(moves.directions.T[:, rows], order=order)
    offset, slope, low, high, below = moves.numbers[rows].T
    projection = _product(columns, directions)
    shift = np.clip(offset + slope * projection, low, high)
    shift[projection >= below] = 0
    step = np.multiply(directions, shift, order=order)
    if moves.keep_norm is None:
        columns += step
        return
    before = _product(columns, columns)
    columns += step
    after = _product(columns, columns)
    kept = (moves.keep_norm[rows, 0] > 0) & (shift != 0) & (after > 0)
    scale = np.sqrt(before / np.where(kept, after, 1), dtype=np.float32)
    columns *= np.where(kept, scale, np.float32(1))


def _product(one: F32, other: F32) -> F32:
    """Multiply columns with columns, or with one, (num_columns,).

    Not by BLAS, whose threads would stay awake beside those that run the blocks.
    """
    if other.shape[1] == 1:
        product: F32 = np.einsum("ij,i->j", one, other[:, 0])
    else:
        product = np.einsum("ij,ij->j", one, other)
    return product
