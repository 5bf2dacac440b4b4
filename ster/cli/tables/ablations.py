"""What an ablation wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ster.cli.tables.drawing import Column, Columns, plain
from ster.text import counted, decimal, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ster.workflows.ablating import Ablation

# Tensors that are shown; a mixture of experts has thousands.
SHOWN = 20


def draw_ablation(done: Ablation) -> Iterator[RenderableType]:
    """Show which tensors were rewritten, and where the checkpoint is."""
    from rich.text import Text

    yield Text(f"{one_line(done.model)} without {one_line(done.trait_name)}", "bold")
    layers = counted(len(done.layers), "layer")
    yield plain(f"strength {decimal(done.strength)}, {layers}")
    yield ""
    shown = [one_line(name) for name in done.rewritten[:SHOWN]]
    if shown:
        yield Columns(columns=[Column(name="rewritten", cells=shown, is_text=True)])
    if len(done.rewritten) > len(shown):
        yield f"the first {len(shown)}; the document has all"
    yield plain(
        f"{counted(len(done.rewritten), 'tensor')} of {done.total_tensors} rewritten, "
        f"{counted(done.parameters, 'value')}; {done.copied_tensors} copied as they are"
    )
    yield plain(f"{counted(len(done.files), 'file')} in {one_line(done.output)}")
