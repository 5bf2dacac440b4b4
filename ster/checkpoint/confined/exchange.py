"""Lines to a process and lines back, within limits of time and size."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

_PIPE_BYTES = 1 << 16


class TooSlowError(Exception):
    """A reply did not come in time; the message is the time that it had.

    Args:
        seconds: How long it was waited for.
        replies: How many had come.
    """

    def __init__(self, seconds: float, replies: int) -> None:
        super().__init__(f"{seconds:.0f} seconds")
        self.replies = replies


class Exchange:
    """The pipes of a process, which do not block.

    Args:
        process: Reads lines and answers each with one.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._writer, self._reader = (pipe.fileno() for pipe in pipes(process))
        self._unsent = memoryview(b"")

    def send(self, data: bytes) -> None:
        """Send what goes through at once; the rest goes with what is sent next."""
        self._unsent = memoryview(bytes(self._unsent) + data)
        with suppress(OSError):  # that it has died is said by ``converse``
            self._write()

    def converse(
        self, data: bytes, limits: Sequence[float], max_reply_bytes: int
    ) -> list[bytes]:
        """Send lines and read a reply for each limit.

        Args:
            data: What to send.
            limits: How many seconds each reply may take after the one before it.
            max_reply_bytes: How long a reply may be.

        Returns:
            The replies, more than limits if the process sent more.

        Raises:
            TooSlowError: A reply does not come in time.
            OverflowError: A reply is too long.
            OSError: The other side hung up.
        """
        self._unsent = memoryview(bytes(self._unsent) + data)
        begun = bytearray()
        replies: list[bytes] = []
        with selectors.PollSelector() as selector:
            selector.register(self._reader, selectors.EVENT_READ)
            if self._unsent:
                selector.register(self._writer, selectors.EVENT_WRITE)
            came = time.monotonic()
            while len(replies) < len(limits):
                seconds = limits[len(replies)]
                ready = selector.select(max(came + seconds - time.monotonic(), 0.0))
                if not ready:
                    raise TooSlowError(seconds, len(replies))
                if any(key.fd == self._writer for key, _ in ready):
                    self._write()
                    if not self._unsent:
                        selector.unregister(self._writer)
                if any(key.fd == self._reader for key, _ in ready):
                    data = self._read()
                    begun += data
                    if b"\n" in data:
                        *whole, begun = begun.split(b"\n")
                        replies += map(bytes, whole)
                        came = time.monotonic()
                if len(begun) > max_reply_bytes:
                    raise OverflowError
        return [*replies, bytes(begun)] if begun else replies

    def _read(self) -> bytes:
        data = os.read(self._reader, _PIPE_BYTES)
        if not data:
            raise BrokenPipeError
        return data

    def _write(self) -> None:
        try:
            sent = os.write(self._writer, self._unsent[:_PIPE_BYTES])
        except BlockingIOError:
            sent = 0
        self._unsent = self._unsent[sent:]


def pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    """Return the two ends that belong to the parent, writer first."""
    if process.stdin is None or process.stdout is None:
        raise ValueError("the process has no pipes")
    return process.stdin, process.stdout
