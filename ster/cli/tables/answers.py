"""Answers at several strengths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ster.cli.tables.drawing import Column, Columns
from ster.text import decimal, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ster.documents.answers import Answer


def draw_answers(found: Iterable[Answer]) -> Iterator[RenderableType]:
    """Show the answers at several strengths, whose lines are joined."""
    rows = [*found]
    texts = [printable(" ".join(each.text.split())) for each in rows]
    yield Columns(
        columns=[
            Column(name="strength", cells=[*map(spelled, rows)]),
            Column(name="answer", cells=texts, is_text=True),
        ]
    )


def spelled(answer: Answer) -> str:
    """Write an answer's strength as it was asked for."""
    return answer.strength_word or decimal(answer.strength or 0.0)
