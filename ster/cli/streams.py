"""The three standard streams, whatever state the caller left them in.

A stream may be closed, full, a pipe without a reader, or speak ASCII only. None of that
may crash a run or spoil its output file.
"""

from __future__ import annotations

import contextlib
import os
import sys

from ster.errors import OutputError
from ster.text import printable


def open_missing_streams() -> None:
    """Give closed standard streams /dev/null, lest a file of ours gets their number.

    A document opened as descriptor 2 would receive the messages meant for stderr.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for descriptor, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115


def write_stdout(text: str) -> bool:
    """Write the answer.

    A reader who has gone away is no error: the work is done and its document is whole.

    Returns:
        Whether anyone still reads.

    Raises:
        OutputError: Standard output cannot be written, as on a full disk.
    """
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(encode(text, sys.stdout.encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        _silence(1)
        return False
    except OSError as error:
        _silence(1)
        raise OutputError("failed to write standard output", error) from error
    return True


def say(text: str) -> None:
    """Write lines for a person to stderr; what would control a terminal is escaped."""
    write_stderr(printable(text))


def write_stderr(text: str) -> None:
    """Write to stderr as it is, or drop it where nobody can read it."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        _silence(2)


def encode(text: str, encoding: str) -> bytes:
    """Encode text so that nothing is refused, and a path keeps its bytes.

    Bytes of an argument that were no text come back as they were; characters that the
    encoding lacks become backslash escapes.
    """
    try:
        return text.encode(encoding, "surrogateescape")
    except UnicodeEncodeError:
        return text.encode(encoding, "backslashreplace")


class Messages:
    """Standard error as a file that never fails, for the progress display."""

    @property
    def encoding(self) -> str:
        """Name the encoding, which decides whether a bar is drawn in ASCII."""
        return sys.stderr.encoding or "ascii"

    def write(self, text: str) -> int:
        """Write text and report it as written."""
        write_stderr(text)
        return len(text)

    def flush(self) -> None:
        """Do nothing: every write is flushed."""

    def isatty(self) -> bool:
        """Tell whether a person watches."""
        return sys.stderr.isatty()

    def fileno(self) -> int:
        """Give the descriptor, from which rich learns the terminal's width."""
        return sys.stderr.fileno()


def _silence(descriptor: int) -> None:
    """Send what is still buffered nowhere, so that exiting does not fail on it."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
