"""From facts to HTML, for notebooks: no script, nothing but text from the values.

A notebook may be light or dark and may strip style sheets. So text takes the page's own
colours, lines are half transparent, and everything reads without any style.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ster.text import counted, printable

# What is shown of a table; the rest is counted.
MAX_ROWS = 10
MAX_CHARACTERS = 80

_GREY = "var(--jp-border-color1, rgba(128, 128, 128, 0.5))"
_CARD = "font-size: 0.9em; line-height: 1.4; color: inherit; max-width: 60em"
_TABLE = "border-collapse: collapse; margin: 0.4em 0; color: inherit"
_CELL = "text-align: left; padding: 0.1em 1.2em 0.1em 0; vertical-align: top"
_NAME = f"{_CELL}; font-weight: normal; opacity: 0.7"
_NUMBER = "text-align: right; padding: 0.1em 1.2em 0.1em 0; vertical-align: top"
_LINE = f"border-bottom: 1px solid {_GREY}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A small table.

    Args:
        header: The names of the columns.
        rows: As many cells each; numbers are aligned to the right.
        num_rows: How many there are in all, if more than these.
        noun: What a row is, for "3 more layers".
        remark: What is to be said of those that are not shown.
        marked: Which rows stand out.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    num_rows: int = 0
    noun: str = "row"
    remark: str = ""
    marked: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a value shows of itself in a notebook.

    Args:
        title: What it is.
        facts: Names and values; a None is left out.
        tables: At most a few, each short.
    """

    title: str
    facts: Sequence[tuple[str, object]] = ()
    tables: Sequence[Table] = ()


def to_html(card: Card) -> str:
    """Write a card as HTML that stands alone."""
    parts = [f'<div class="ster" style="{_CARD}">']
    parts.append(f"<div><strong>{text(card.title)}</strong></div>")
    facts = [(name, value) for name, value in card.facts if value is not None]
    if facts:
        parts.append(f'<table style="{_TABLE}"><tbody>')
        for name, value in facts:
            head = f'<th scope="row" style="{_NAME}">{text(name)}</th>'
            parts.append(f'<tr>{head}<td style="{_CELL}">{text(value)}</td></tr>')
        parts.append("</tbody></table>")
    for table in card.tables:
        parts += _table(table)
    return "".join([*parts, "</div>"])


def text(value: object, limit: int = MAX_CHARACTERS) -> str:
    """Escape a value for HTML, on one line and cut where it is too long."""
    return html.escape(cut(show(value), limit))


def cut(words: str, limit: int = MAX_CHARACTERS) -> str:
    """Cut a text, and put what would not show on one line as a person can see it."""
    # Cut first: a text may be a book.
    shown = " ".join(printable(words[: limit + 1]).split())
    if max(len(words), len(shown)) <= limit:
        return shown
    return shown[: limit - 1].rstrip() + "…"


def show(value: object) -> str:
    """Write a number briefly, anything else as ``str`` does."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(table: Table) -> Iterator[str]:
    yield f'<table style="{_TABLE}"><thead><tr>'
    numeric = [
        any(isinstance(row[column], int | float) for row in table.rows)
        for column in range(len(table.header))
    ]
    for name, right in zip(table.header, numeric, strict=True):
        style = f"{_NUMBER if right else _CELL}; {_LINE}"
        yield f'<th scope="col" style="{style}">{text(name)}</th>'
    yield "</tr></thead><tbody>"
    for index, row in enumerate(table.rows):
        yield "<tr>"
        for value, right in zip(row, numeric, strict=True):
            words = text(value)
            if index in table.marked:
                words = f"<strong>{words}</strong>"
            yield f'<td style="{_NUMBER if right else _CELL}">{words}</td>'
        yield "</tr>"
    yield "</tbody></table>"
    more = table.num_rows - len(table.rows)
    if more > 0:
        words = f"… {counted(more, f'more {table.noun}')}{table.remark}"
        yield f'<div style="opacity: 0.7">{text(words)}</div>'
