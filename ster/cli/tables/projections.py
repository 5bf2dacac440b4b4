"""Where steering moves the sides of pairs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from ster.cli.tables.drawing import Column, Columns, number
from ster.cli.tables.vectors import title
from ster.text import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ster.vectors.projection import Projection


def draw_projection(found: Projection) -> Iterator[RenderableType]:
    """Show the mean place of each side, unsteered and steered, and what moved."""
    yield from title(found.vector)
    means = found.coordinates.mean(axis=1)
    rows = [*product((0, 1), (0, 1))]  # side, then steered or not
    columns = [
        Column(
            name="side (mean)",
            cells=[("positive", "negative")[side] for side, _ in rows],
            is_text=True,
        ),
        Column(name="steered", cells=[("no", "yes")[steered] for _, steered in rows]),
    ]
    for index, explained in enumerate(found.explained):
        cells = [number(means[steered, side, index]) for side, steered in rows]
        name = f"component {index + 1} ({explained:.0%})"
        columns.append(Column(name=name, cells=cells, rank=index))
    yield Columns(columns=columns)
    pairs = counted(found.num_pairs, "pair")
    yield f"{pairs}, read at layer {found.layer}, steered at strength {found.spelled}"
    if found.shift_along_direction is not None:
        shift = f"{found.shift_along_direction:+.4g}"
        yield f"along the direction of that layer all sides moved by {shift} on average"
    before, after = map(number, (found.unsteered_distance, found.steered_distance))
    closer = round(found.moved_toward_positive * found.num_pairs)
    yield (
        "negative sides from the mean of unsteered positive ones: "
        f"{before}, steered {after}; {closer} of {found.num_pairs} came nearer"
    )
