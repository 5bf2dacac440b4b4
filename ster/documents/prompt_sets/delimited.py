"""Tables of prompts as text: a header, then one prompt a row."""

from __future__ import annotations

import csv
import io
import math
import re
import sys
from collections.abc import Sequence

from ster.documents.prompt_sets.entries import Entry, EntryError, choose_field
from ster.text import counted, quoted

# What begins with a needless zero is no number but an identifier.
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?", re.ASCII)
_MOST = 2**63  # and so is a whole number that no array holds


def read_table(text: str, delimiter: str) -> list[Entry]:
    """Read a table whose column ``prompt`` or ``text`` holds the prompts.

    The other columns are labels. A column without a name, as pandas writes for its
    index, is left out.

    Args:
        text: One line of names, then the rows.
        delimiter: What stands between fields.

    Raises:
        EntryError: It is no such table; the sentence says in which line.
    """
    names, table = read_rows(text, delimiter)
    prompt = _find_prompt(names)
    check_widths(names, table)
    labels = {
        name: _as_numbers([row[column] for _, row in table])
        for column, name in enumerate(names)
        if name and column != prompt
    }
    return [
        Entry(
            text=row[prompt],
            labels={name: values[index] for name, values in labels.items()},
            line=line,
        )
        for index, (line, row) in enumerate(table)
    ]


def read_rows(
    text: str, delimiter: str
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Read the names of the columns, and each row that is not blank.

    Returns:
        The names, and for each row the line that it begins on and its fields.

    Raises:
        EntryError: It is no such table, or a name is there twice.
    """
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    # One setting of the whole process; a prompt may be longer than it allows.
    before = csv.field_size_limit(sys.maxsize)
    rows: list[tuple[int, list[str]]] = []
    line = 1
    try:
        for row in reader:
            if row:
                rows.append((line, row))
            line = reader.line_num + 1
    except csv.Error as error:
        raise EntryError(f"line {line}: {error}") from None
    finally:
        csv.field_size_limit(before)
    names = rows[0][1] if rows else []
    for name in names:
        if name and names.count(name) > 1:
            raise EntryError(f"the column {quoted(name)} is there twice")
    return names, rows[1:]


def check_widths(
    names: Sequence[str], table: Sequence[tuple[int, Sequence[str]]]
) -> None:
    """Refuse a row that has not one field for each column.

    Raises:
        EntryError: There is one; the sentence says in which line.
    """
    for line, row in table:
        if len(row) != len(names):
            fields = counted(len(row), "field")
            columns = counted(len(names), "column")
            raise EntryError(f"line {line} has {fields} for {columns}")


def _find_prompt(names: Sequence[str]) -> int:
    """Find the column of the prompts.

    Raises:
        EntryError: There is none.
    """
    found = choose_field(name for name in names if name != "messages")
    if found is None:
        there = ", ".join(map(quoted, names)) or "none"
        raise EntryError(
            f"no column `prompt` or `text` in the first line; the columns are {there}"
        )
    return list(names).index(found)


def _as_numbers(values: list[str]) -> Sequence[object]:
    """Read a column as numbers where every value is one."""
    if not all(map(_NUMBER.fullmatch, values)):
        return values
    if all(map(_WHOLE.fullmatch, values)):
        whole = [int(value) if len(value) < 20 else _MOST for value in values]
        return whole if all(-_MOST <= each < _MOST for each in whole) else values
    floats = [float(value) for value in values]
    return floats if all(map(math.isfinite, floats)) else values
