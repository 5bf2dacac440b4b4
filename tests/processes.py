"""Processes that a test starts: each is heard with a limit and ends with the test.

Only here is ``Popen`` called. A test that fails leaves its ``with``, and there a
process that still runs is killed; nobody waits for it without an end.
"""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import FileIO
from typing import IO, Any

# Seconds after which something is wrong, however busy the machine.
LIMIT = 60.0
Command = Sequence[str | bytes]
Process = subprocess.Popen[bytes]


@contextmanager
def started(command: Command, **options: Any) -> Iterator[Process]:
    """Start a process that is over when the ``with`` is, whatever became of the test.

    Args:
        command: Program and words.
        **options: As for ``Popen``; both streams are pipes unless they say otherwise.
    """
    streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    process: Process = subprocess.Popen(command, **streams)
    try:
        yield process
    finally:
        process.kill()  # which does nothing to one that has ended
        process.wait(LIMIT)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def finished(command: Command, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a process to its end."""
    with started(command, **options) as process:
        out, err = process.communicate(timeout=LIMIT)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@contextmanager
def at_a_terminal(command: Command) -> Iterator[tuple[Process, FileIO]]:
    """Start a process whose stderr is a terminal; yield it and that one's screen."""
    screen, terminal = pty.openpty()
    with FileIO(screen) as shown, ExitStack() as stack:
        try:
            process = stack.enter_context(started(command, stderr=terminal))
        finally:
            os.close(terminal)
        yield process, shown


def on_a_terminal(command: Command) -> tuple[int, bytes, bytes]:
    """Run a process to its end: its code, its stdout, and what its terminal showed."""
    with at_a_terminal(command) as (process, screen):
        heard = rest(screen)
        out, _ = process.communicate(timeout=LIMIT)
    return process.returncode, out, heard


def heard_until(stream: IO[bytes] | FileIO | None, words: bytes) -> bytes:
    """Read to the end of some words, and not a byte further.

    Fails where the other side closes before it has said them, or is silent.
    """
    assert stream is not None
    deadline = time.monotonic() + LIMIT
    heard = b""
    while not heard.endswith(words):
        byte = _piece(stream, 1, deadline)
        assert byte, f"it ended before {words!r}: {heard!r}"
        heard += byte
    return heard


def rest(stream: IO[bytes] | FileIO) -> bytes:
    """Read until the other side is closed."""
    deadline = time.monotonic() + LIMIT
    heard = b""
    while piece := _piece(stream, 65536, deadline):
        heard += piece
    return heard


def _piece(stream: IO[bytes] | FileIO, size: int, deadline: float) -> bytes:
    """Read what there is, past any buffer; nothing once the other side is closed."""
    left = max(0.0, deadline - time.monotonic())
    ready, _, _ = select.select([stream], [], [], left)
    assert ready, "nothing more was said"
    try:
        return os.read(stream.fileno(), size)
    except OSError:  # how Linux reports the end of a terminal
        return b""


def on_screen(command: Command) -> tuple[int, bytes]:
    """Run a process whose three streams are one terminal: its code, and the screen."""
    screen, terminal = pty.openpty()
    with FileIO(screen) as shown, ExitStack() as stack:
        streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
        try:
            process = stack.enter_context(started(command, **streams))
        finally:
            os.close(terminal)
        heard = rest(shown)
        process.wait(LIMIT)
    return process.returncode, heard
