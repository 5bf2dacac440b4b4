"""Rows moved along a direction, on a GPU. Read it beside ``numpy.moves``."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from ster.stream.changes import Moves


def bring_moves(moves: Moves[Any]) -> Moves[mx.array]:
    """Copy moves."""
    keep = moves.keep_norm
    return Moves(
        directions=mx.array(moves.directions),
        numbers=mx.array(moves.numbers),
        keep_norm=None if keep is None else mx.array(keep),
    )


def move(hidden: mx.array, moves: Moves[mx.array], which: mx.array | None) -> mx.array:
    """Move rows, as ``stream.changes.Move`` says; nothing is computed yet.

    Args:
        hidden: The rows, (num_rows, hidden_size).
        moves: The moves.
        which: The move of each row; None is the first for all.
    """
    rows = slice(0, 1) if which is None else which  # one row goes with all
    directions = moves.directions[rows]
    offset, slope, low, high, below = mx.split(moves.numbers[rows], 5, axis=1)
    projection = (hidden * directions).sum(axis=1, keepdims=True)
    shift = mx.minimum(mx.maximum(offset + slope * projection, low), high)
    shift = mx.where(projection >= below, 0.0, shift)
    moved = hidden + shift * directions
    if moves.keep_norm is None:
        return moved
    before = mx.square(hidden).sum(axis=1, keepdims=True)
    after = mx.square(moved).sum(axis=1, keepdims=True)
    kept = (moves.keep_norm[rows] > 0) & (shift != 0) & (after > 0)
    scale = mx.sqrt(before / mx.where(kept, after, 1.0))
    return moved * mx.where(kept, scale, 1.0)
