"""How an answer becomes text: a plain line, pretty JSON, or ``path: value`` lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ster.documents.descriptors import is_standard_output
from ster.text import CONTROLS

if TYPE_CHECKING:
    from rich.console import RenderableType

Table = Callable[[], "Iterable[RenderableType]"]

# In pretty JSON these stand within strings only, where an escape means the same; only a
# newline stands between values too. Lone surrogates are the bytes of an odd path.
_JSON_ESCAPES = {
    code: f"\\u{code:04x}"
    for code in (*CONTROLS, *range(0xD800, 0xE000))
    if chr(code) != "\n"
}


def show(
    answer: object, *, text: bool | None, table: Table | None = None
) -> Iterator[str]:
    """Yield what is printed: for a person a table, for a program what it can parse.

    Nothing is made before it is asked for, and by then stdout is what it was when the
    command began.

    Args:
        answer: As for ``render``.
        text: Whether ``--text`` was given; False is ``--json``, None is neither.
        table: Makes what a terminal shows of a document.
    """
    if table is not None and text is None and sys.stdout.isatty():
        from ster.cli.tables.drawing import draw  # late: only a person waits for rich

        yield draw(table())
    else:
        yield render(answer, text=text)


def show_beside(
    output_path: str,
    answer: object,
    *,
    text: bool | None,
    table: Table | None = None,
) -> Iterator[str]:
    """Yield the answer beside a written document; nothing if that went to stdout.

    Args:
        output_path: Where the document went.
        answer: As for ``show``.
        text: As for ``show``.
        table: As for ``show``.
    """
    if not is_standard_output(output_path):
        yield from show(answer, text=text, table=table)


def render(answer: object, *, text: bool | None) -> str:
    """Turn an answer into what is printed.

    Args:
        answer: A string, printed as it is, or a JSON document.
        text: Whether a document is shown as ``path: value`` lines (``--text``).
    """
    if isinstance(answer, str):
        return f"{answer}\n"
    if text:
        return "".join(f"{path}: {value}\n" for path, value in _leaves(answer, ""))
    pretty = json.dumps(answer, ensure_ascii=False, indent=2, sort_keys=True)
    return f"{pretty.translate(_JSON_ESCAPES)}\n"


def render_beside(output_path: str, answer: object, *, text: bool | None) -> str:
    """Render an answer beside a written document; nothing if that went to stdout.

    Args:
        output_path: Where the document went.
        answer: As for ``render``.
        text: As for ``render``.
    """
    return "" if is_standard_output(output_path) else render(answer, text=text)


def _leaves(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Walk a document in the order in which it is printed as JSON."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            name = _one_line(key)
            yield from _leaves(value[key], f"{path}.{name}" if path else name)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    elif value is None:
        yield path, "-"
    else:
        yield path, _one_line(value) if isinstance(value, str) else json.dumps(value)


def _one_line(text: str) -> str:
    """Quote a string that would break its line, so that it cannot forge another."""
    return text if CONTROLS.isdisjoint(map(ord, text)) else json.dumps(text)
