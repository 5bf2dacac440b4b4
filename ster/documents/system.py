"""The system turn: a text file, read whole."""

from __future__ import annotations

import os
from pathlib import Path

from ster.errors import DocumentError
from ster.text import trim


def read_system_turn(path: str | os.PathLike[str]) -> str:
    """Read the text of a system message.

    Raises:
        DocumentError: It cannot be read, is no UTF-8, or is blank.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        sentence = f"cannot read the system turn {os.fsdecode(path)}"
        raise DocumentError(sentence, error, path=path) from error
    if not trim(text):
        sentence = f"the system turn {os.fsdecode(path)} is empty"
        raise DocumentError(sentence, path=path, found=text)
    return text
