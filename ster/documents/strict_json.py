"""JSON read strictly and written compactly.

Every document goes through here, so each is refused in the same way.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import TypeVar

import orjson

from ster.errors import DocumentError, OutputError, SterError, name_path
from ster.text import quoted

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Dropped before keys are counted. None is a quote or a colon, and none may directly
# follow a backslash, so strings end where they did.
_NO_PART_OF_A_KEY_COUNT = b"0123456789.,-+eE[]{} \t\r\n"
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


# An output with such a name is meant to be in another format.
_OTHER_FORMATS = (
    *(".npz", ".npy", ".safetensors", ".pt", ".pth", ".bin", ".gguf", ".h5", ".hdf5"),
    *(".parquet", ".csv", ".tsv", ".pkl", ".pickle", ".zip"),
)

Parsed = TypeVar("Parsed")


class JsonError(ValueError):
    """Data that is no strict JSON, or a document that lacks the form it should have."""


def read_json(data: bytes) -> object:
    """Read one JSON document strictly: whatever the format does not have is refused.

    Args:
        data: UTF-8, with or without a byte order mark.

    Raises:
        JsonError: No strict JSON, a number too large for a float, a lone surrogate or
            a key given twice; the message is one line.
    """
    text = data.removeprefix(_BYTE_ORDER_MARK)
    try:
        document: object = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise JsonError(_describe(error, text)) from None
    if _count_keys(document) != _count_colons(text):
        raise JsonError(_name_repeated_key(text))
    return document


def is_blank(data: bytes) -> bool:
    """Tell whether nothing stands in a text but white space."""
    return not data.removeprefix(_BYTE_ORDER_MARK).strip()


def _describe(error: orjson.JSONDecodeError, text: bytes) -> str:
    if is_blank(text):
        return "it is empty"
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as invalid:
        return f"invalid UTF-8 at byte {invalid.start}"
    return f"{error.msg} at line {error.lineno} column {error.colno}"


def _count_keys(document: object) -> int:
    count = 0
    pending = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            count += len(value)
            pending += value.values()
        elif isinstance(value, list):
            pending += [item for item in value if type(item) in (dict, list)]
    return count


def _count_colons(text: bytes) -> int:
    """Count the keys as they stand in the text, where a repeated one counts again."""
    skeleton = text.translate(None, _NO_PART_OF_A_KEY_COUNT)
    return _STRING.sub(b"", skeleton).count(b":")


def _name_repeated_key(text: bytes) -> str:
    try:
        json.loads(text, object_pairs_hook=_refuse_repeated_key, parse_int=float)
    except JsonError as error:
        return str(error)
    except RecursionError:
        pass
    return "a key is given twice"


def _refuse_repeated_key(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for key, value in pairs:
        if key in fields:
            raise JsonError(f"key {quoted(key)} is given twice")
        fields[key] = value
    return fields


def read_document(
    path: str | os.PathLike[str],
    parse: Callable[[object], Parsed],
    *,
    unread: str,
    invalid: str,
) -> Parsed:
    """Read a JSON file strictly and turn it into what it stands for.

    Args:
        path: The file.
        parse: Takes the document; raises ``JsonError`` where its form is wrong.
        unread: The sentence for a file that cannot be read, without its path.
        invalid: The sentence for any other fault of the file, without its path.

    Raises:
        DocumentError: With one of these two sentences, or what ``parse`` raises.
    """
    label = name_path(path)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (OSError, ValueError) as error:
        raise DocumentError(f"{unread} {label}", error, path=path) from error
    try:
        return parse(read_json(data))
    except JsonError as error:
        raise DocumentError(f"{invalid} in {label}", error, path=path) from error
    except SterError as error:
        error.path = error.path or label
        raise


def dump_json(document: object, path: str) -> bytes:
    """Write a document compactly, f32 arrays in their shortest digits.

    Raises:
        OutputError: A text in it is no Unicode; ``path`` is where it was to go.
    """
    try:
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError as error:
        # A name on the command line need not be UTF-8, and JSON must be.
        raise OutputError(f"failed to write {path}", error, path=path) from error


def check_json_name(path: str | os.PathLike[str]) -> None:
    """Refuse to give a JSON document the name of another format.

    Args:
        path: Where the document shall be.

    Raises:
        OutputError: The name ends like a format that is not written here.
    """
    label = name_path(path)
    stem, suffix = os.path.splitext(label)
    if suffix.lower() in _OTHER_FORMATS:
        raise OutputError(
            f"failed to write {label}",
            f"the document is JSON and no {suffix}; {stem}.json would say so",
            path=label,
            found=suffix,
            expected=".json",
        )
