"""Tables that fit a terminal, and the lines around them.

rich is imported when a table is drawn. Text out of files passes ``one_line``: it could
move the cursor or forge a row.
"""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ster.text import listing, trim

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

WIDEST = 100
# Between two columns.
_GAP = 3
# Columns without room that are named.
MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table.

    Args:
        name: Its heading.
        cells: One for each row.
        is_text: It is read from the left, and may be broken into lines.
        rank: Where there is no room, columns of the highest rank are left out first; 0
            is never.
    """

    name: str
    cells: Sequence[str]
    is_text: bool = False
    rank: int = 0

    @property
    def width(self) -> int:
        """The columns of a terminal that it takes, with what parts it from the next."""
        from rich.cells import cell_len

        longest = max(map(cell_len, [self.name, *self.cells]))
        return _GAP + (min(longest, 16) if self.is_text else longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """A table that leaves out what it has no room for, and says so below.

    Where not even those that are never left out have room, it is a list of its cells.

    Args:
        columns: Of the table.
        marked: The row that stands out, if any.
    """

    columns: Sequence[Column]
    marked: int | None = None

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw it as wide as the terminal allows."""
        from rich.text import Text

        del console
        columns = fitting(self.columns, options.max_width)
        if _needed(columns) > options.max_width:
            yield from self._list(columns)
        else:
            yield self._tabulate(columns)
        if missing := [each.name for each in self.columns if each not in columns]:
            yield Text(
                f"no room for {_abridge(missing)}, which --json prints",
                style="dim",
                overflow="fold",
            )

    def _tabulate(self, columns: Sequence[Column]) -> RenderableType:
        """Draw these columns beside one another."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column in columns:
            table.add_column(
                Text(column.name),
                justify="left" if column.is_text else "right",
                overflow="fold",
                no_wrap=not column.is_text,
            )
        rows = zip(*(column.cells for column in columns), strict=True)
        for number, row in enumerate(rows):
            style = "bold" if number == self.marked else ""
            table.add_row(*(Text(cell, style=style) for cell in row))
        return table

    def _list(self, columns: Sequence[Column]) -> Iterator[RenderableType]:
        """Give each cell a line, where a table would break numbers."""
        from rich.text import Text

        rows = zip(*(column.cells for column in columns), strict=True)
        for number, row in enumerate(rows):
            style = "bold" if number == self.marked else ""
            for column, cell in zip(columns, row, strict=True):
                if line := trim(f"{column.name} {cell}"):
                    yield Text(line, style=style, overflow="fold")
            yield ""


def fitting(columns: Sequence[Column], room: int) -> list[Column]:
    """Leave out columns of high rank until the others have room."""
    kept = [*columns]
    while _needed(kept) > room and any(each.rank for each in kept):
        kept.remove(max(kept, key=lambda each: each.rank))
    return kept


def _needed(columns: Sequence[Column]) -> int:
    """The width of a table; nothing parts its last column from a next one."""
    return sum(each.width for each in columns) - _GAP


def _abridge(names: Sequence[str]) -> str:
    """Name a few, and count the rest."""
    rest = len(names) - MOST_NAMED
    more = [f"{rest} more"] if rest > 0 else []
    return listing([*names[:MOST_NAMED], *more], "and")


def draw(parts: Iterable[RenderableType]) -> str:
    """Draw lines and tables one below the other, for the terminal that stdout is."""
    from rich.console import Console

    width = min(max(shutil.get_terminal_size().columns, 20), WIDEST)
    file = _Page(sys.stdout.encoding or "ascii")
    console = Console(
        file=file,
        force_terminal=True,
        highlight=False,
        markup=False,
        emoji=False,
        width=width,
    )
    for part in parts:
        console.print(part)
    return file.getvalue()


class _Page(io.StringIO):
    """Text that is to be written in an encoding; rich draws in ASCII if it must."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


def plain(line: str) -> RenderableType:
    """Make a line that is broken anywhere."""
    from rich.text import Text

    return Text(line, overflow="fold")


def warning(sentence: str) -> RenderableType:
    """Make a line that warns."""
    from rich.text import Text

    return Text(f"warning: {sentence}", style="yellow")


def share(value: float) -> str:
    """Write a share."""
    return f"{value:.3f}"


def interval(bounds: tuple[float, float]) -> str:
    """Write an interval of shares."""
    return f"{bounds[0]:.2f} to {bounds[1]:.2f}"


def number(value: float) -> str:
    """Write a number in few digits, whatever its size."""
    return f"{value:.4g}"
