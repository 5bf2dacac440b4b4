"""Files of prompts: JSON, JSON lines, tables and plain lines, as the suffix says."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from ster.documents.mix_ups import refuse_other_kinds
from ster.documents.prompt_sets.delimited import read_table
from ster.documents.prompt_sets.entries import Entry, EntryError, assemble, make_entry
from ster.documents.prompt_sets.given_bytes import (
    BYTE_ORDER_MARK,
    STANDARD_INPUT,
    decode_utf8,
    numbered_lines,
    read_given,
    read_json_lines,
)
from ster.documents.prompt_sets.value import PromptSet
from ster.documents.strict_json import JsonError, is_blank, read_json
from ster.errors import DocumentError, PromptError, name_path

# How an object or a list of JSON begins, and hardly ever a text.
_LIKE_JSON = re.compile(rb'\s*(\{\s*["}]|\[\s*["{\[\]])')
_SPACE = re.compile(rb"\s")
_NO_SET = "expected an object with the key `prompts`, or a list of prompts"


@dataclass(frozen=True, slots=True)
class _Form:
    """A kind of file.

    Args:
        parse: Takes what stands in the file.
        invalid: The sentence for a file that is not of this kind, without its path.
    """

    parse: Callable[[bytes], list[Entry]]
    invalid: str


def read_prompt_set(
    path: str | os.PathLike[str], *, stream: BinaryIO | None = None
) -> PromptSet:
    """Read a file of prompts, in order and unchanged.

    Args:
        path: Its suffix says what it is; without a known one it is JSON. ``-`` is
            standard input, whose form its content tells.
        stream: What ``-`` reads instead of standard input.

    Raises:
        DocumentError: It cannot be read or is no prompt set.
        PromptError: It has no prompts, or a blank one.
    """
    label, data = read_given(path, stream, "failed to read")
    if name_path(path) == STANDARD_INPUT:
        form = _tell_form(data)
    else:
        form = _FORMS.get(os.path.splitext(label)[1].lower(), _JSON)
    is_empty = is_blank(data)
    try:
        entries = [] if is_empty and form is not _JSON else form.parse(data)
    except (JsonError, EntryError) as error:
        raise DocumentError(f"{form.invalid} {label}", error, path=label) from error
    try:
        return assemble(entries)
    except PromptError as error:
        if is_empty:
            error.causes = (f"{label} is empty",)
        raise _placed(error, entries, label) from error


def _placed(error: PromptError, entries: list[Entry], label: str) -> PromptError:
    """Say which prompt of a file is refused."""
    causes = list(error.causes)
    if error.prompt is not None:
        line = entries[error.prompt - 1].line
        where = "" if line is None else f", on line {line},"
        causes = [f"prompt {error.prompt}{where} is blank"]
    return PromptError(
        error.sentence,
        *causes,
        path=label,
        field=error.field,
        found=error.found,
        prompt=error.prompt,
    )


def _tell_form(data: bytes) -> _Form:
    """Tell what standard input is: JSON, lines of JSON objects, a table, or lines.

    What only begins like JSON is taken for it, so that a broken document is refused and
    does not become prompts. A table has at least two names without white space in its
    first line, one of them that of the prompts.
    """
    content = data.removeprefix(BYTE_ORDER_MARK)
    if not _LIKE_JSON.match(content):
        return _tell_table(content.split(b"\n", 1)[0].rstrip(b"\r"))
    first = content.lstrip().split(b"\n", 1)[0]
    try:
        fields = read_json(first)
    except JsonError:
        return _JSON
    is_line = isinstance(fields, dict) and "prompts" not in fields
    return _JSON_LINES if is_line else _JSON


def _tell_table(header: bytes) -> _Form:
    for delimiter, suffix in ((b"\t", ".tsv"), (b",", ".csv")):
        names = [name.strip(b'"') for name in header.split(delimiter)]
        has_prompts = b"prompt" in names or b"text" in names
        if len(names) > 1 and has_prompts and not any(map(_SPACE.search, names)):
            return _FORMS[suffix]
    return _TEXT


def _parse_json(data: bytes) -> list[Entry]:
    document = read_json(data)
    if isinstance(document, list):
        return [_make(each, f"prompt {n}") for n, each in enumerate(document, 1)]
    if not isinstance(document, dict):
        raise JsonError(_NO_SET)
    if "prompts" not in document:
        refuse_other_kinds(document, "prompts")
        raise JsonError("missing field `prompts`")
    prompts = document["prompts"]
    if not isinstance(prompts, list):
        raise JsonError("`prompts` is no list of strings")
    for index, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            raise JsonError(f"`prompts[{index}]` is no string")
    return [Entry(text=prompt) for prompt in prompts]


def _parse_json_lines(data: bytes) -> list[Entry]:
    values = read_json_lines(data)
    return [_make(value, f"line {number}", number) for number, value in values]


def _make(value: object, place: str, line: int | None = None) -> Entry:
    try:
        return make_entry(value, line)
    except EntryError as error:
        raise EntryError(f"{place}: {error}") from None


def _parse_text(data: bytes) -> list[Entry]:
    return [Entry(text=line, line=number) for number, line in numbered_lines(data)]


def _parse_csv(data: bytes) -> list[Entry]:
    return read_table(decode_utf8(data), ",")


def _parse_tsv(data: bytes) -> list[Entry]:
    return read_table(decode_utf8(data), "\t")


_JSON = _Form(_parse_json, "invalid prompt JSON in")
_JSON_LINES = _Form(_parse_json_lines, "invalid prompt JSON in")
_TEXT = _Form(_parse_text, "failed to read")
_FORMS = {
    ".jsonl": _JSON_LINES,
    ".csv": _Form(_parse_csv, "invalid prompt CSV in"),
    ".tsv": _Form(_parse_tsv, "invalid prompt CSV in"),
    ".txt": _TEXT,
}
