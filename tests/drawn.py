"""What a plot drew: its numbers, where, and under which names."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection


def corners(ax: Axes) -> Any:
    """Return the corners of all parts of the first band, (num_corners, 2)."""
    return np.concatenate([path.vertices for path in ax.collections[0].get_paths()])


def lines(ax: Axes) -> dict[str, tuple[list[float], list[float]]]:
    """Return the numbers of each named line; those of error bars are named too."""
    found: dict[str, Any] = {str(line.get_label()): line for line in ax.lines}
    for container in ax.containers:
        line = container[0]
        found[str(container.get_label())] = line
    return {
        name: (
            np.asarray(line.get_xdata()).tolist(),
            np.asarray(line.get_ydata()).tolist(),
        )
        for name, line in found.items()
        if not name.startswith("_")
    }


def legend(ax: Axes) -> list[str]:
    shown = ax.get_legend()
    assert shown is not None
    return [text.get_text() for text in shown.get_texts()]


def rings(ax: Axes) -> list[float]:
    """Return x and y of the marks that are no lines."""
    marks: Any = [each for each in ax.collections if isinstance(each, PathCollection)]
    return [float(part) for each in marks for part in each.get_offsets().ravel()]


def bars(ax: Axes, label: str) -> np.ndarray:
    """Return both ends of each error bar of a line, (num_points, 2)."""
    (container,) = (each for each in ax.containers if each.get_label() == label)
    (segments,) = container[2]
    return np.array([segment[:, 1] for segment in segments.get_segments()])
