"""How hidden states compare with a reference, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ster.cli.tables.drawing import Column, Columns
from ster.text import counted, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ster.workflows.parity import Parity

# Records that are shown; the document has all.
SHOWN = 20


def draw_parity(found: Parity) -> Iterator[RenderableType]:
    """Show the records that are farthest off, in the order of the document."""
    from rich.text import Text

    ranked = sorted(found.records, key=lambda each: -each.worst_position_error)
    kept = {id(each) for each in ranked[:SHOWN]}
    rows = [each for each in found.records if id(each) in kept]
    yield Text(one_line(found.model), "bold")
    yield Columns(
        columns=[
            Column(name="record", cells=[str(each.record) for each in rows]),
            Column(name="layer", cells=[str(each.layer) for each in rows]),
            Column(name="tokens", cells=[str(e.num_tokens) for e in rows], rank=4),
            Column(name="error", cells=[f"{e.relative_error:.1e}" for e in rows]),
            Column(name="worst", cells=[f"{e.worst_position_error:.1e}" for e in rows]),
            Column(name="at", cells=[str(e.worst_position) for e in rows], rank=1),
            Column(
                name="difference",
                cells=[f"{each.largest_difference:.1e}" for each in rows],
                rank=2,
            ),
            Column(
                name="least cosine",
                cells=[f"{each.smallest_cosine:.7f}" for each in rows],
                rank=3,
            ),
        ],
        marked=rows.index(found.worst),
    )
    if len(rows) < len(found.records):
        yield f"the {len(rows)} of {len(found.records)} that are farthest off"
    yield (
        f"{counted(len(found.records), 'comparison')}; error: over all positions, "
        "as a share of the reference's length; worst: at one position"
    )
