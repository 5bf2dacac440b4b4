"""The families of models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ster.cli.tables.drawing import Column, Columns, plain

if TYPE_CHECKING:
    from rich.console import RenderableType


def draw_families(listed: Sequence[Mapping[str, object]]) -> Iterator[RenderableType]:
    """Show the families of models."""

    def cells(key: str) -> list[str]:
        return ["" if each[key] is None else str(each[key]) for each in listed]

    yield Columns(
        columns=[
            Column(name="family", cells=cells("family"), is_text=True),
            Column(name="models", cells=cells("models"), is_text=True, rank=2),
            Column(name="through", cells=cells("through"), is_text=True),
            Column(name="largest error", cells=cells("largest_error"), rank=1),
        ]
    )
    yield ""
    checks = {str(each["checked"]): str(each["through"]) for each in listed}
    for checked, through in checks.items():
        yield plain(f"{through}: checked {checked}")
