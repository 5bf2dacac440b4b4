"""Answers at several strengths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ster.cli.tables.drawing import Column, Columns
from ster.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ster.documents.answers import Answer


def draw_answers(found: Iterable[Answer]) -> Iterator[RenderableType]:
    """Show the answers at several strengths, whose lines are joined."""
    rows = [*found]
    texts = [printable(" ".join(each.text.split())) for each in rows]
    yield Columns(
        columns=[
            Column(name="strength", cells=[each.spelled for each in rows]),
            Column(name="answer", cells=texts, is_text=True),
        ]
    )
