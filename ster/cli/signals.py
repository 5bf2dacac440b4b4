"""Signals that end a run: each becomes an exception, so that every `with` cleans up."""

from __future__ import annotations

import signal
import time
from types import FrameType

# One Ctrl-C often arrives twice, from the terminal and from a wrapper such as make. The
# second must not cut short what the first one has begun to tidy.
REPEAT_SECONDS = 1.0


class Stopped(BaseException):
    """The run was told to end.

    Args:
        number: The signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number
        self.word = "Interrupted" if number == signal.SIGINT else "Terminated"


def stop_on_signals() -> None:
    """Raise ``Stopped`` on Ctrl-C, SIGTERM and SIGHUP unless they are ignored."""
    last = -REPEAT_SECONDS

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal last
        now = time.monotonic()
        if now - last >= REPEAT_SECONDS:
            last = now
            raise Stopped(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)


def ignore_signals() -> None:
    """Let nothing interrupt the interpreter while it shuts down."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
