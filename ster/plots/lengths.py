"""How long the rows of each layer are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ster.documents.activations.value import Activations
from ster.errors import require_type
from ster.plots.styles import group_rows, mark_layers, plain, style, take_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def norms(
    activations: Activations,
    *,
    label: str | Sequence[object] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the length of rows by layer: the median, and a band of 90 % of the rows.

    Args:
        activations: The rows; of several points the first is drawn.
        label: Draw a line for each value of this label, or of one value for each row.
        ax: Where to draw; a new figure if not given.

    Raises:
        DocumentError: The label is refused.
        SterError: matplotlib is not installed.
    """
    require_type(activations, Activations, "activations")
    groups = {"": np.arange(len(activations))}
    if label is not None:
        groups = group_rows(activations, label)
    ax = take_axes(ax)
    lengths = activations.norms().astype(np.float64)
    layers = activations.layers
    for index, (name, rows) in enumerate(groups.items()):
        lower, median, upper = np.percentile(lengths[rows], (5, 50, 95), axis=0)
        look = style(index)
        ax.plot(layers, median, label=plain(name) or "median", markersize=4, **look)
        band = None if label is not None else "5 % to 95 % of rows"
        ax.fill_between(
            layers, lower, upper, color=look["color"], alpha=0.15, lw=0, label=band
        )
    mark_layers(ax, layers)
    ax.set_ylabel(f"norm of {activations.points[0]} (L2)")
    ax.set_ylim(bottom=0)
    title = plain(label) if isinstance(label, str) else None
    ax.legend(title=title)
    return ax
