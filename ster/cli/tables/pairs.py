"""What pairs are like, as a person at a terminal sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ster.cli.tables.drawing import Column, Columns
from ster.text import counted, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ster.documents.pair_sets.inspection import PairInspection


def draw_inspection(found: PairInspection) -> Iterator[RenderableType]:
    """Show what is counted of pairs, and what trivially tells their sides apart."""
    name = f"{one_line(found.trait_name)}: " if found.trait_name else ""
    yield f"{name}{counted(found.num_pairs, 'pair')}"
    for fact, value in found.facts:
        yield f"{fact}: {value}"
    yield ""
    rows = found.rule_rows
    yield Columns(
        columns=[
            Column(name="rule", cells=[rule for rule, _, _ in rows], is_text=True),
            Column(name="tells apart", cells=[share for _, share, _ in rows]),
            Column(name="positive is", cells=[what for *_, what in rows], is_text=True),
        ]
    )
    ends = [(end, *count) for end, counts in found.ends.items() for count in counts]
    yield ""
    yield Columns(
        columns=[
            Column(name="end", cells=[end for end, *_ in ends], is_text=True),
            Column(
                name=found.unit.removesuffix("s"),
                cells=[one_line(text) for _, text, _, _ in ends],
                is_text=True,
            ),
            Column(name="positive", cells=[str(count) for _, _, count, _ in ends]),
            Column(name="negative", cells=[str(count) for *_, count in ends]),
        ]
    )
    yield ""
    yield (
        "tells apart: of pairs, by the rule alone, learnt from the other pairs; 0.5 is "
        "chance"
    )
