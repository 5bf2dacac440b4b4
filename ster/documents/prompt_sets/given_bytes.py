"""Bytes of a file or of standard input, and the lines in them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import BinaryIO

from ster.documents.prompt_sets.entries import EntryError
from ster.documents.strict_json import JsonError, read_json
from ster.errors import DocumentError, name_path
from ster.text import trim

STANDARD_INPUT = "-"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_given(
    path: str | os.PathLike[str], stream: BinaryIO | None, unread: str
) -> tuple[str, bytes]:
    """Read a file or standard input.

    Args:
        path: The file; ``-`` is standard input.
        stream: What ``-`` reads instead of standard input.
        unread: The sentence for what cannot be read, without its path.

    Returns:
        What sentences call it, and what stands in it.

    Raises:
        DocumentError: It cannot be read.
    """
    label = name_path(path)
    try:
        if label == STANDARD_INPUT:
            label = "standard input"
            return label, _standard_input(stream).read()
        with open(path, "rb") as file:
            return label, file.read()
    except (OSError, ValueError) as error:
        raise DocumentError(f"{unread} {label}", error, path=label) from error


def decode_utf8(data: bytes) -> str:
    """Decode a text, with or without a byte order mark.

    Raises:
        EntryError: It is no UTF-8.
    """
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise EntryError(
            f"invalid UTF-8 at byte {error.start}; the file must be UTF-8"
        ) from None


def numbered_lines(data: bytes) -> Iterator[tuple[int, str]]:
    """Number the lines and skip blank ones. Only a newline ends a line.

    Raises:
        EntryError: It is no UTF-8.
    """
    for number, line in enumerate(decode_utf8(data).split("\n"), start=1):
        if trim(line):
            yield number, line.removesuffix("\r")


def read_json_lines(data: bytes) -> Iterator[tuple[int, object]]:
    """Read the JSON of each line that is not blank, with the line's number.

    Raises:
        EntryError: It is no UTF-8.
        JsonError: A line is no strict JSON; the sentence says which.
    """
    for number, line in numbered_lines(data):
        try:
            yield number, read_json(line.encode("utf-8"))
        except JsonError as error:
            cause = str(error).replace(" at line 1 column ", " at column ")
            raise JsonError(f"line {number}: {cause}") from None


def _standard_input(stream: BinaryIO | None) -> BinaryIO:
    given = stream or getattr(sys.stdin, "buffer", None)
    if given is None:
        raise ValueError("there is none here")
    return given
