"""Prompts from Python: lists, arrays, columns, tables and chats.

Tables are known by what they can do, so that no library is imported for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ster.documents.prompt_sets.entries import (
    FIELDS,
    Entry,
    EntryError,
    assemble,
    choose_field,
    make_entry,
    plain,
)
from ster.documents.prompt_sets.value import Prompts, PromptSet
from ster.documents.prompts import check_text, take_list
from ster.errors import PromptError
from ster.text import one_line

_LIST = "a list of strings"


def take_prompt_set(given: Prompts) -> PromptSet:
    """Make a prompt set of whatever ``PromptSet.of`` takes.

    Raises:
        PromptError: It is something else, or a prompt in it is refused.
    """
    if isinstance(given, PromptSet):
        return given
    refuse_splits(given, "prompts", _LIST)
    names = column_names(given)
    if names is not None:
        _require_prompts(given, names)
        items: list[Any] = take_rows(given, names, "prompts")
    else:
        items = take_list(given, "prompts")
        if all(type(item) is str for item in items):
            return PromptSet(prompts=tuple(items))
    return assemble([_take_entry(item, n) for n, item in enumerate(items, start=1)])


def _take_entry(item: object, number: int) -> Entry:
    if isinstance(item, str):
        # The strings of numpy's arrays are of a type of their own.
        return Entry(text=str.__str__(item))
    is_chat = isinstance(item, list | tuple) and any(
        isinstance(turn, Mapping) for turn in item
    )
    if not is_chat and not isinstance(item, Mapping):
        check_text(item, "a prompt", number)  # type: ignore[arg-type]
    try:
        return make_entry(item)
    except EntryError as error:
        sentence = f"prompt {number} cannot be read"
        raise PromptError(sentence, str(error), found=item, prompt=number) from None


def refuse_splits(given: object, name: str, expected: str) -> None:
    """Refuse a mapping of tables, which ``datasets`` makes of all splits together.

    Args:
        given: What a notebook handed over.
        name: What the sentence calls it.
        expected: What it should be.

    Raises:
        PromptError: It is such a mapping.
    """
    if isinstance(given, Mapping) and hasattr(type(given), "column_names"):
        kind = type(given).__name__
        raise PromptError(
            f"{name} must be {expected}, not {kind}",
            'one of its splits will do, as in dataset["train"]',
            field=name,
            found=given,
            expected=expected,
        )


def column_names(given: object) -> list[Any] | None:
    """Return the names of a table's columns; None where it is no table.

    The type is asked, for a table may have a column of such a name, too. A stream of
    rows has no length and is read as the iterable that it is.
    """
    kind = type(given)
    if isinstance(given, Mapping) or not hasattr(kind, "__len__"):
        return None
    # In this order: what pyarrow calls columns are not their names.
    for attribute in ("column_names", "columns"):
        if hasattr(kind, attribute):
            return list(getattr(given, attribute))
    return None


def take_rows(
    given: object, names: Sequence[Any], field: str
) -> list[dict[Any, object]]:
    """Take a table apart into rows.

    Args:
        given: The table.
        names: Of its columns.
        field: What the table is called among the arguments.

    Raises:
        PromptError: It has a column twice.
    """
    table: Any = given
    for name in names:
        if names.count(name) > 1:
            sentence = f"the column {one_line(str(name))} is there twice"
            raise PromptError(sentence, field=field, found=table)
    columns = [_values(table[name]) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _require_prompts(given: object, names: Sequence[Any]) -> None:
    """Refuse a table without a column for the prompts."""
    if choose_field(name for name in names if isinstance(name, str)) is None:
        there = ", ".join(one_line(str(name)) for name in names) or "none"
        raise PromptError(
            f"a table of prompts needs a column {', '.join(FIELDS[:-1])} or "
            f"{FIELDS[-1]}",
            f"the columns of this {type(given).__name__} are {there}",
            field="prompts",
            found=given,
        )


def _values(given: object) -> list[object]:
    """List a column's values as Python's own; a missing one is None."""
    column: Any = given
    kind = type(given)
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(kind, method):
            values: Iterable[object] = getattr(column, method)()
            break
    else:
        values = column
    if not hasattr(kind, "isna"):
        return [plain(value) for value in values]
    missing = column.isna().tolist()
    return [
        None if lacks else plain(value)
        for value, lacks in zip(values, missing, strict=True)
    ]
