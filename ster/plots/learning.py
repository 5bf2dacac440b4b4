"""How many pairs a direction needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ster.errors import LayerError, require_type
from ster.layers import name_layers
from ster.plots.styles import GREY, style, take_axes
from ster.vectors.learning_curves import LearningCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# More layers than a person can tell apart.
_MAX_LAYERS = 6


def curve(
    measured: LearningCurve,
    layer: int | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw the share of held-out pairs that directions order, by the pairs fitted on.

    Of one layer the bars are 95 % confidence intervals. The dotted line is what one
    random direction in twenty exceeds, at the layer where that is most.

    Args:
        measured: What ``runtime.curve`` returned.
        layer: One of its layers; if not given all of them, or of many the six most
            accurate ones.
        ax: Where to draw; a new figure if not given.

    Raises:
        LayerError: The layer was not measured.
        SterError: matplotlib is not installed.
    """
    require_type(measured, LearningCurve, "measured")
    layers = (
        measured.most_accurate(_MAX_LAYERS) if layer is None else _only(measured, layer)
    )
    ax = take_axes(ax)
    for index, each in enumerate(layers):
        points = measured.at_layer(each)
        sizes = [point.size for point in points]
        shares = [point.accuracy for point in points]
        look = style(index)
        ax.plot(sizes, shares, label=f"layer {each}", markersize=5, **look)
        if len(layers) == 1:
            lower, upper = zip(*(point.score.interval for point in points), strict=True)
            ax.vlines(sizes, lower, upper, color=look["color"], lw=0.8)
    random = max(
        point.score.random.percentile_95
        for each in layers
        for point in measured.at_layer(each)
    )
    ax.axhline(random, color=GREY, linestyle=":", label="95 % of random directions")
    ax.set_xlabel(f"pairs fitted on ({measured.method})")
    ax.set_ylabel(f"accuracy on {measured.num_holdout} held-out pairs")
    ax.set_ylim(-0.03, 1.03)
    some = layer is None and len(layers) < len(measured.layers)
    ax.legend(title=f"the best of {len(measured.layers)} layers" if some else None)
    return ax


def _only(measured: LearningCurve, layer: int) -> list[int]:
    if layer not in measured.layers:
        raise LayerError(
            f"layer {layer} was not measured, only {name_layers(measured.layers)}",
            field="layer",
            layer=layer,
            expected=measured.layers,
        )
    return [layer]
