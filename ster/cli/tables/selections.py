"""How candidates did, and which was chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ster.cli.tables.drawing import Column, Columns, interval, number, share, warning
from ster.cli.tables.vectors import say_confounds, title
from ster.text import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ster.vectors.selection import Candidate, Selection

# Candidates that are shown; a document has all.
SHOWN = 10


def draw_selection(found: Selection) -> Iterator[RenderableType]:
    """Show the best candidates, beside chance, and whether the choice means much."""
    yield from title(found.vector)
    ranked = sorted(found.candidates, key=lambda c: (-c.accuracy, -c.margin))
    shown = ranked[:SHOWN]
    yield Columns(columns=_candidate_columns(shown), marked=shown.index(found.best))
    if len(ranked) > SHOWN:
        yield f"and {len(ranked) - SHOWN} more candidates, which --json prints"
    held = counted(found.num_holdout, "held-out pair")
    yield (
        f"* chosen over {len(ranked)} candidates on {held}, then fitted again on "
        f"all {found.num_fit + found.num_holdout} pairs"
    )
    tied = sum(each.accuracy == found.best.accuracy for each in ranked) - 1
    if tied:
        have = "has" if tied == 1 else "have"
        yield (
            f"{counted(tied, 'other')} {have} the same accuracy: the margin decided "
            "between them"
        )
    chance = found.random_best
    yield (
        f"random directions at their best layer: accuracy {share(chance.mean)} on "
        f"average, one in twenty above {share(chance.percentile_95)}"
    )
    yield from say_confounds(found.confounds)
    for sentence in say_doubts(found):
        yield warning(sentence)


def say_doubts(found: Selection) -> Iterator[str]:
    """Say where the held-out pairs are too few to tell candidates apart."""
    low, pairs = found.best.interval[0], counted(found.num_holdout, "held-out pair")
    is_few = "is too few" if found.num_holdout == 1 else "are too few"
    if found.random_best.percentile_95 >= low:
        yield (
            f"{pairs} {is_few} to tell the best candidate from a random direction "
            "at its best layer: its interval reaches down to them"
        )
    others = [each for each in found.candidates if each is not found.best]
    within = sum(each.accuracy >= low for each in others)
    if within > len(others) / 2:
        yield (
            f"{pairs} {is_few} to tell candidates apart: {within} of the other "
            f"{len(others)} lie within the interval of the best"
        )


def _candidate_columns(shown: Sequence[Candidate]) -> list[Column]:
    random = [share(each.random.percentile_95) for each in shown]
    sizes = [each.effect_size for each in shown]
    effects = ["-" if size is None else f"{size:.2f}" for size in sizes]
    intervals = [interval(each.interval) for each in shown]
    return [
        Column(name="", cells=["*" if each.selected else " " for each in shown]),
        Column(name="layer", cells=[str(each.layer) for each in shown]),
        Column(name="method", cells=[each.method for each in shown], is_text=True),
        Column(name="accuracy", cells=[share(each.accuracy) for each in shown]),
        Column(name="95 % interval", cells=intervals, rank=1),
        Column(name="random", cells=random, rank=2),
        Column(name="effect size", cells=effects, rank=4),
        Column(name="margin", cells=[number(each.margin) for each in shown], rank=3),
    ]
