"""How an answer becomes text: a plain line, pretty JSON, or ``path: value`` lines."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

# Control characters, and Unicode's own separators of lines and paragraphs.
_BREAKING = ("Cc", "Zl", "Zp")


def render(answer: object, *, text: bool) -> str:
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
    return f"{pretty}\n"


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
    """Quote a string that would break its line, so that no name can forge another."""
    breaks = any(unicodedata.category(each) in _BREAKING for each in text)
    return json.dumps(text) if breaks else text
