"""What all plots share: axes, colours, markers, and groups of rows by label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from ster.documents.activations.value import Activations
from ster.errors import DocumentError, require_type
from ster.extras import importing
from ster.html import cut
from ster.text import quoted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer

Item = TypeVar("Item")

# Okabe and Ito 2008, without black and yellow: one of them is lost on any background.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "^", "s", "D", "v", "P", "X")
_LINES = ("-", "--", "-.", ":")
GREY = "0.5"
# What stands around the chosen mark.
RING: dict[str, Any] = {
    "s": 170,
    "facecolors": "none",
    "edgecolors": "0.3",
    "zorder": 5,
}
# More groups than a person can tell apart.
MAX_GROUPS = 12
_MAX_NAME = 30
# How far apart the intervals of two methods stand, in layers.
_STEP = 0.14


def take_axes(ax: Axes | None) -> Axes:
    """Return the given axes, or new ones in a figure of their own.

    Raises:
        UsageError: Something else was given.
        SterError: matplotlib is not installed.
    """
    with importing("matplotlib", "notebook"):
        if ax is None:
            import matplotlib.pyplot as plt

            return plt.subplots(layout="constrained")[1]
        from matplotlib import axes
    require_type(ax, axes.Axes, "ax")
    return ax


def split_axes(ax: Axes) -> Axes:
    """Give the lower third of axes to others with the same x axis, and return those."""
    figure, spec = ax.figure, ax.get_subplotspec()
    if spec is None:  # of a place of their own
        left, bottom, width, height = ax.get_position().bounds
        ax.set_position((left, bottom + 0.36 * height, width, 0.64 * height))
        place = left, bottom, width, 0.32 * height
        below = figure.add_axes(place, sharex=ax)
    else:
        parts = spec.subgridspec(2, 1, height_ratios=(2, 1), hspace=0.06)
        ax.set_subplotspec(parts[0])
        below = figure.add_subplot(parts[1], sharex=ax)
    ax.tick_params(labelbottom=False)
    return below


def style(index: int) -> dict[str, Any]:
    """Return the look of one of several lines or groups; none is told by colour alone.

    Markers are one more than colours, so that pairs of both do not soon repeat.
    """
    return {
        "color": _COLOURS[index % len(_COLOURS)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "linestyle": _LINES[index % len(_LINES)],
    }


def by_method(
    items: Sequence[Item], method_of: Callable[[Item], str]
) -> Iterator[tuple[int, float, str, list[Item]]]:
    """Yield a number, a shift along x, the name and the items of each method."""
    methods = [*dict.fromkeys(map(method_of, items))]
    for index, method in enumerate(methods):
        shift = (index - (len(methods) - 1) / 2) * _STEP
        yield (
            index,
            shift,
            method,
            [each for each in items if method_of(each) == method],
        )


def ring(ax: Axes, x: float, y: float, method: str, layer: int) -> None:
    """Draw a ring around the chosen candidate."""
    label = f"chosen: {plain(method)}, layer {layer}"
    ax.scatter(x, y, label=label, **RING)


def mark_layers(ax: Axes, layers: Iterable[int]) -> None:
    """Let the x axis count layers, which are whole numbers."""
    from matplotlib.ticker import MaxNLocator

    ax.set_xlabel("layer (block index)")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if len({*layers}) == 1:
        (only,) = {*layers}
        ax.set_xlim(only - 1, only + 1)


def draw_intervals(
    ax: Axes,
    x: Sequence[float],
    y: Sequence[float],
    intervals: Sequence[tuple[float, float]],
    **look: Any,
) -> ErrorbarContainer:
    """Draw a line with an interval at each point, and return it."""
    lower, upper = np.array(intervals).T
    # Rounding may put an end on the wrong side.
    bars = np.maximum([y - lower, upper - y], 0)
    return ax.errorbar(x, y, yerr=bars, lw=1.4, elinewidth=0.8, markersize=5, **look)


def put_legend(ax: Axes, **handles: Any) -> None:
    """Put the legend above the plot: inside, it would hide intervals."""
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=2,
        frameon=False,
        fontsize="small",
        **handles,
    )


def plain(words: object) -> str:
    """Make any text one that matplotlib draws as it is, on one line and not long."""
    # A dollar begins a formula.
    return cut(str(words), _MAX_NAME).replace("$", r"\$")


def group_rows(
    activations: Activations, label: str | Sequence[object]
) -> dict[str, npt.NDArray[np.int64]]:
    """Group rows by a label, in the order in which its values come.

    Args:
        activations: The rows.
        label: The name of one of their labels, or a value for each row.

    Raises:
        DocumentError: There is no such label, there are more or fewer values than
            rows, or more groups than can be told apart.
    """
    groups: dict[str, list[int]] = {}
    for row, value in enumerate(_values(activations, label)):
        groups.setdefault(str(value), []).append(row)
    if len(groups) > MAX_GROUPS:
        raise DocumentError(
            f"a plot tells {MAX_GROUPS} groups apart, and the label has {len(groups)}",
            field="label",
            found=len(groups),
            expected=MAX_GROUPS,
        )
    return {name: np.array(rows) for name, rows in groups.items()}


def _values(activations: Activations, label: str | Sequence[object]) -> list[object]:
    if isinstance(label, str):
        if label not in activations.labels:
            there = ", ".join(activations.labels) or "none"
            raise DocumentError(
                f"activations have no label {quoted(label)}; there are {there}",
                "a list of one value for each row is taken too",
                field="label",
                found=label,
                expected=tuple(activations.labels),
            )
        values = activations.labels[label]
        return [values[prompt] for prompt in activations.prompt_index]
    if len(label) != len(activations):
        raise DocumentError(
            f"labels must be one for each of {len(activations)} rows, not {len(label)}",
            field="label",
            found=len(label),
            expected=len(activations),
        )
    return [*label]
