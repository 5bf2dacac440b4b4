"""How alike several vectors are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ster.errors import LayerError, require_type
from ster.layers import name_layers
from ster.plots.styles import plain, take_axes
from ster.vectors.comparison import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# More numbers than these would lie on each other.
_MAX_NUMBERS = 12


def similarity(
    comparison: Comparison, layer: int | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw the cosine of each two vectors, those of a cluster side by side.

    Lines part the clusters.

    Args:
        comparison: What ``vector.compare`` returned.
        layer: One of its layers; the mean over all of them if not given.
        ax: Where to draw; a new figure if not given.

    Raises:
        LayerError: The layer was not compared.
        SterError: matplotlib is not installed.
    """
    require_type(comparison, Comparison, "comparison")
    table = comparison.similarity
    what = f"mean cosine, {name_layers(comparison.layers)}"
    if layer is not None:
        table = comparison.cosines[_place(comparison, layer)]
        what = f"cosine at layer {layer}"
    clusters = np.array(comparison.clusters)
    order = np.argsort(clusters, kind="stable")
    ax = take_axes(ax)
    image = ax.imshow(table[np.ix_(order, order)], cmap="PuOr", vmin=-1, vmax=1)
    figure = ax.get_figure()
    if figure is not None:
        figure.colorbar(image, ax=ax).set_label(what)
    names = [plain(comparison.labels[each]) for each in order]
    ax.set_xticks(range(len(names)), names, rotation=90)
    ax.set_yticks(range(len(names)), names)
    ax.set_xlabel("vector")
    ax.set_ylabel("vector")
    for border in np.flatnonzero(np.diff(clusters[order])) + 0.5:
        ax.axhline(border, color="black", lw=1.5)
        ax.axvline(border, color="black", lw=1.5)
    if len(names) <= _MAX_NUMBERS:
        for row, column in np.ndindex(table.shape):
            value = table[order[row], order[column]]
            colour = "white" if abs(value) > 0.6 else "black"
            ax.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour)
    return ax


def _place(comparison: Comparison, layer: int) -> int:
    if layer not in comparison.layers:
        raise LayerError(
            f"layer {layer} was not compared, only {name_layers(comparison.layers)}",
            field="layer",
            layer=layer,
            expected=comparison.layers,
        )
    return comparison.layers.index(layer)
