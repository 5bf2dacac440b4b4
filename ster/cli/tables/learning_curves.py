"""How many pairs a direction needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ster.cli.tables.drawing import Column, Columns, interval, share, warning
from ster.text import counted, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ster.vectors.learning_curves import LearningCurve


def draw_curve(found: LearningCurve) -> Iterator[RenderableType]:
    """Show the accuracy of each layer by the pairs that it was fitted on."""
    from rich.text import Text

    yield Text(one_line(found.trait_name), style="bold")
    yield f"{found.method}, on {counted(found.num_holdout, 'held-out pair')}"
    yield ""
    enough = found.enough
    columns = [
        Column(name="layer", cells=[str(each.layer) for each in enough]),
        Column(name="enough", cells=[str(each.smallest_size) for each in enough]),
    ]
    by_layer = [
        {each.size: each.accuracy for each in found.at_layer(layer)}
        for layer in found.layers
    ]
    # The smallest sizes are left out first.
    for rank, size in enumerate(reversed(found.sizes), start=1):
        cells = [share(each[size]) for each in by_layer]
        name = counted(size, "pair")
        columns.insert(1, Column(name=name, cells=cells, rank=rank))
    best = found.best
    yield Columns(columns=columns, marked=found.layers.index(best.layer))
    yield "accuracy on held-out pairs, by the number of pairs fitted on"
    yield "enough: the smallest of these that reaches the layer's best"
    points = found.at_layer(best.layer)
    score = next(each.score for each in points if each.size == best.smallest_size)
    yield (
        f"layer {best.layer} from {counted(best.smallest_size, 'pair')}: "
        f"{share(score.accuracy)}, 95 % interval {interval(score.interval)}; one "
        f"random direction in twenty exceeds {share(score.random.percentile_95)}"
    )
    within = {each.size for each in points if each.accuracy >= score.interval[0]}
    if within == {*found.sizes} and len(within) > 1:
        held = counted(found.num_holdout, "held-out pair")
        few = "is too few" if found.num_holdout == 1 else "are too few"
        yield warning(f"{held} {few} to tell the sizes apart at that layer")
