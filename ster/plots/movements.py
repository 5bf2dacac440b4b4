"""Where steering moves the sides of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ster.errors import require_type
from ster.plots.styles import plain, style, take_axes
from ster.vectors.projection import SIDES, Projection

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def movement(projection: Projection, *, ax: Axes | None = None) -> Axes:
    """Draw each side of pairs, unsteered and steered, and a line from one to the other.

    The axes are the first two principal components of the unsteered rows; where there
    is one, the other axis numbers the pairs. Hollow marks are unsteered.

    Args:
        projection: What ``runtime.project`` returned.
        ax: Where to draw; a new figure if not given.

    Raises:
        SterError: matplotlib is not installed.
    """
    require_type(projection, Projection, "projection")
    points = projection.coordinates[..., :2]
    names = [
        f"component {index + 1} of layer {projection.layer} ({share:.0%})"
        for index, share in enumerate(projection.explained[:2])
    ]
    if len(names) == 1:
        pairs = np.arange(projection.num_pairs, dtype=np.float64)[None, :, None, None]
        numbers = np.broadcast_to(pairs, points.shape)
        points = np.concatenate([points, numbers], axis=-1)
        names.append("pair")
    ax = take_axes(ax)
    for index, side in enumerate(SIDES):
        before, after = points[:, :, index]
        look = style(index)
        colour, marker = look["color"], look["marker"]
        # One line for all: a gap after each row.
        gap = np.full_like(before, np.nan)
        path = np.stack([before, after, gap], axis=1).reshape(-1, 2)
        ax.plot(*path.T, color=colour, lw=0.8, alpha=0.5, zorder=1)
        marks = {"color": colour, "marker": marker, "linestyle": "none"}
        ax.plot(*before.T, label=side, fillstyle="none", markersize=6, **marks)
        ax.plot(*after.T, label=f"{side}, steered", markersize=5, alpha=0.8, **marks)
    ax.set_xlabel(names[0])
    ax.set_ylabel(names[1])
    trait = plain(projection.vector.trait_name) or "the vector"
    ax.legend(title=f"{trait} at {projection.spelled}")
    return ax
