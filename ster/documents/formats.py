"""Which format a document has: by its suffix when written, by its content when read."""

from __future__ import annotations

import os
import stat

from ster.documents.descriptors import find_descriptor
from ster.errors import OutputError, name_path
from ster.text import quoted

JSON, SAFETENSORS, NPZ, GGUF = "json", "safetensors", "npz", "gguf"
_ZIP_MAGIC, _GGUF_MAGIC = b"PK", b"GGUF"
_HEAD_BYTES = 9


def output_format(path: str | os.PathLike[str], formats: tuple[str, ...]) -> str:
    """Choose how a document is written by the suffix of its name.

    What is no regular file (``/dev/stdout``, a pipe) has no suffix and gets JSON.

    Args:
        path: Where the document shall be; nothing there is touched.
        formats: Those that there are for this kind of document.

    Raises:
        OutputError: The suffix is none of theirs.
    """
    label = name_path(path)
    suffix = os.path.splitext(label)[1]
    form = suffix.lower().removeprefix(".")
    if form in formats:
        return form
    if not _may_be_regular(label):
        return JSON
    *most, last = [f".{each}" for each in formats]
    there = f"{', '.join(most)} or {last}"
    found = f"the suffix {quoted(suffix)} is none" if suffix else "the name has none"
    raise OutputError(
        f"failed to write {label}",
        f"a suffix says how this document is written, {there}; {found}",
        path=label,
        found=suffix,
        expected=tuple(f".{each}" for each in formats),
    )


def input_format(path: str | os.PathLike[str], formats: tuple[str, ...]) -> str:
    """Tell how a document was written: by its first bytes, or else by its suffix.

    A pipe is not touched, since what is read of it is gone; only JSON comes that way.
    """
    suffix = os.path.splitext(name_path(path))[1].lower().removeprefix(".")
    head = _read_head(path)
    for form, begins in (
        (NPZ, head.startswith(_ZIP_MAGIC)),
        (GGUF, head.startswith(_GGUF_MAGIC)),
        # The length of a header, which leaves these bytes empty, and its brace.
        (SAFETENSORS, head[5:] == b"\0\0\0{"),
        (JSON, head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"),
    ):
        if begins and form in formats:
            return form
    return suffix if suffix in formats else JSON


def _read_head(path: str | os.PathLike[str]) -> bytes:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return b""
        with open(path, "rb") as file:
            return file.read(_HEAD_BYTES)
    except (OSError, ValueError):  # what reads the document says so
        return b""


def _may_be_regular(label: str) -> bool:
    """Tell whether a path is a regular file or may become one.

    Where it is something else, or can be nothing, whoever opens it says so.
    """
    if not label or label.endswith("/"):
        return False
    try:
        if find_descriptor(os.path.join(os.getcwd(), label)) is not None:
            return False
        return stat.S_ISREG(os.stat(label).st_mode)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
