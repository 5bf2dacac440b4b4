"""The plane in which the rows of a layer differ most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ster.documents.activations.value import Activations
from ster.errors import DirectionError, require_type
from ster.plots.styles import GREY, group_rows, plain, style, take_axes
from ster.vectors.components import principal_components

if TYPE_CHECKING:
    from matplotlib.axes import Axes

F64 = npt.NDArray[np.float64]


def pca(
    activations: Activations,
    layer: int,
    *,
    label: str | Sequence[object] | None = None,
    pairs: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw the first two principal components of one layer's rows.

    Args:
        activations: The rows.
        layer: A block index that was read.
        label: Colour and mark rows by the values of this label, or by one value for
            each row.
        pairs: Rows alternate, positive and negative, as those of a pair set do: join
            both sides of each pair, and mark the sides unless there is a label.
        ax: Where to draw; a new figure if not given.

    Raises:
        LayerError: The layer was not read.
        DocumentError: The label is refused.
        DirectionError: There are fewer than two rows, or no pairs.
        SterError: matplotlib is not installed.
    """
    require_type(activations, Activations, "activations")
    points, shares = principal_plane(activations.layer(layer))
    if pairs:
        _check_pairs(activations)
    if label is None and pairs:
        label = ["positive", "negative"] * (len(activations) // 2)
    groups = {"": np.arange(len(activations))}
    if label is not None:
        groups = group_rows(activations, label)
    ax = take_axes(ax)
    if pairs:
        # One line for all: a gap after each pair.
        joined = np.full((len(points) // 2, 3, 2), np.nan)
        joined[:, :2] = points.reshape(-1, 2, 2)
        ax.plot(*joined.reshape(-1, 2).T, color=GREY, lw=0.8, alpha=0.6, zorder=1)
    for index, (name, rows) in enumerate(groups.items()):
        look = style(index) | {"linestyle": "none"}
        ax.plot(*points[rows].T, label=plain(name), alpha=0.8, markersize=5, **look)
    names = (f"component {number + 1} of layer {layer}" for number in range(2))
    x, y = (f"{name} ({share:.0%})" for name, share in zip(names, shares, strict=True))
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if label is not None:
        ax.legend(title=plain(label) if isinstance(label, str) else None)
    return ax


def principal_plane(rows: npt.NDArray[np.float32]) -> tuple[F64, F64]:
    """Project rows on their first two principal components.

    Of the two directions of a component that is taken in which its largest part is
    positive, so that equal rows make equal plots.

    Args:
        rows: (num_rows, hidden_size).

    Returns:
        The coordinates of the rows, (num_rows, 2), and the share of the variance that
        each component explains, (2,).

    Raises:
        DirectionError: There are fewer than two rows.
    """
    found = principal_components(rows, 2)
    missing = 2 - len(found.axes)  # rows may be of one place, or of one line
    points = np.pad(found.coordinates(rows), ((0, 0), (0, missing)))
    return points, np.pad(found.explained, (0, missing))


def _check_pairs(activations: Activations) -> None:
    rows, prompts = len(activations), len(activations.prompts)
    if rows != prompts or rows % 2:
        raise DirectionError(
            "pairs are rows that alternate, positive and negative, one for each text; "
            f"there are {rows} rows of {prompts} texts",
            field="pairs",
            found=rows,
        )
