"""What a vector is worth on pairs, as it reads them and as it steers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ster.cli.tables.drawing import Column, Columns, interval, number, share
from ster.cli.tables.vectors import say_confounds, title
from ster.text import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ster.vectors.measured import MeasuredStrength, StrengthChoice
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
    marked = [index for index, each in enumerate(rows) if each.selected]
    yield Columns(columns=_columns(rows), marked=marked[0] if marked else None)
    skipped = found.num_pairs - found.num_scored
    long = f", {skipped} too long" if skipped else ""
    chosen = "* chosen" if marked else "none chosen"
    yield f"{chosen}; {counted(found.num_scored, 'pair')} scored{long}"
    if found.applying.remark:
        yield f"applied: {found.applying.remark}"
    yield "effect: half of the mean shift less that at the opposite strength, in nats"
    yield f"damage: nats per token of neutral answers, at most {found.max_damage:g}"
    controls = next((each.controls for each in rows if each.controls), None)
    if controls:
        count = counted(len(controls.effects), "random direction")
        yield f"random: the root mean square of the effects of {count}"
        yield "as large: the share of all random directions whose effect is as large"
    yield "ordered: share of pairs whose positive side rose more; mean shift in nats"
    tenth = number(found.residual_norm / 10)
    yield f"0.1n is {tenth} on average over the layers, a tenth of the stream's length"


def _columns(rows: Sequence[MeasuredStrength]) -> list[Column]:
    """Make the columns, those that matter first."""
    random = [number(e.controls.rms) if e.controls else "-" for e in rows]
    as_large = [_small(e.controls.share) if e.controls else "-" for e in rows]
    return [
        Column(name="", cells=["*" if each.selected else " " for each in rows]),
        Column(
            name="strength",
            cells=[each.strength_word or number(each.strength) for each in rows],
        ),
        Column(name="effect", cells=[_effect(each) for each in rows]),
        Column(name="damage", cells=[f"{each.damage:+.3f}" for each in rows]),
        Column(name="random", cells=random, rank=1),
        Column(name="as large", cells=as_large, rank=2),
        Column(name="ordered", cells=[share(each.ordered) for each in rows], rank=3),
        Column(name="mean shift", cells=[f"{e.mean_shift:+.4f}" for e in rows], rank=4),
        Column(name="slope", cells=[_slope(each) for each in rows], rank=5),
        Column(
            name="positive", cells=[f"{e.rises.positive:+.2f}" for e in rows], rank=6
        ),
        Column(
            name="negative", cells=[f"{e.rises.negative:+.2f}" for e in rows], rank=7
        ),
    ]


def _effect(each: MeasuredStrength) -> str:
    error = each.effect.standard_error
    return f"{each.effect.mean:+.2f}" + ("" if error is None else f" ± {error:.2f}")


def _slope(each: MeasuredStrength) -> str:
    return "-" if each.slope is None else number(each.slope)


def _small(share: float) -> str:
    return f"{share:.3f}" if share >= 0.0005 else "< 0.001"
