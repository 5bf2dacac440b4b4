"""What a vector is worth on pairs, as it reads them and as it steers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ster.cli.tables.drawing import Column, Columns, interval, number, share
from ster.cli.tables.vectors import say_confounds, title
from ster.text import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ster.vectors.measured import StrengthChoice
    from ster.vectors.selection import Evaluation

RANDOM = "random: what one random direction in twenty exceeds at that layer"


def draw_evaluation(found: Evaluation) -> Iterator[RenderableType]:
    """Show how each layer orders pairs, and what steering does to them."""
    yield from title(found.vector)
    layers = found.layers
    random = [share(each.random.percentile_95) for each in layers]
    norms = [number(each.residual_norm) for each in layers]
    intervals = [interval(each.interval) for each in layers]
    yield Columns(
        columns=[
            Column(name="layer", cells=[str(each.layer) for each in layers]),
            Column(name="accuracy", cells=[share(each.accuracy) for each in layers]),
            Column(name="95 % interval", cells=intervals, rank=1),
            Column(name="random", cells=random, rank=2),
            Column(name="margin", cells=[number(e.margin) for e in layers], rank=3),
            Column(name="stream's length", cells=norms, rank=4),
        ]
    )
    yield f"on {counted(found.num_pairs, 'pair')}; {RANDOM}"
    yield from say_confounds(found.confounds)
    if found.strength is not None:
        yield ""
        yield from draw_strengths(found.strength)


def draw_strengths(found: StrengthChoice) -> Iterator[RenderableType]:
    """Show what steering at each strength does to the sides of pairs."""
    rows = found.candidates
    yield Columns(
        columns=[
            Column(name="", cells=["*" if each.selected else " " for each in rows]),
            Column(
                name="strength",
                cells=[each.strength_word or number(each.strength) for each in rows],
            ),
            Column(name="ordered", cells=[share(each.ordered) for each in rows]),
            Column(name="mean shift", cells=[f"{e.mean_shift:+.4f}" for e in rows]),
        ],
        marked=next(i for i, each in enumerate(rows) if each.selected),
    )
    skipped = found.num_pairs - found.num_scored
    long = f", {skipped} too long" if skipped else ""
    yield f"* chosen; {counted(found.num_scored, 'pair')} scored{long}"
    yield "ordered: share of pairs whose positive side rose more; mean shift in nats"
    tenth = number(found.residual_norm / 10)
    yield f"0.1n is {tenth} on average over the layers, a tenth of the stream's length"
