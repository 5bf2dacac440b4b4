"""Signals that end a run: each becomes an exception, so that every `with` cleans up."""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING

from ster.interrupts import Stopped, order_stop

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# One Ctrl-C often arrives twice, from the terminal and from a wrapper such as make. The
# second must not cut short what the first one has begun to tidy.
REPEAT_SECONDS = 1.0


def stop_on_signals() -> None:
    """Raise ``Stopped`` on Ctrl-C, SIGTERM and SIGHUP unless they are ignored."""
    last = -REPEAT_SECONDS

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal last
        now = time.monotonic()
        if now - last >= REPEAT_SECONDS:
            last = now
            order_stop(number)
            raise Stopped(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)
    sys.unraisablehook = _report_unraisable


def _report_unraisable(lost: UnraisableHookArgs) -> None:
    """Say nothing of a stop that Python had to drop: the order is remembered."""
    if not issubclass(lost.exc_type, (Stopped, KeyboardInterrupt)):
        sys.__unraisablehook__(lost)


def ignore_signals() -> None:
    """Let nothing interrupt the interpreter while it shuts down."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
