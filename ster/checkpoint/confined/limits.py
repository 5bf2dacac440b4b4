"""The child's side: answer requests, within bounds on memory and time.

Requests and replies are JSON, one a line. This imports the standard library only, so
that a child starts quickly.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

OUT_OF_MEMORY = 86

_peak_limit = sys.maxsize


def serve(
    handle: Callable[[bytes], dict[str, object]], seconds: Callable[[int], float]
) -> None:
    """Answer requests until the parent hangs up.

    Args:
        handle: Takes a request's line and returns the reply.
        seconds: Gives, for the size of a request in bytes, the seconds after which this
            process ends itself. The parent has an earlier deadline, but may be gone.
    """
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    for request in requests:
        signal.alarm(int(seconds(len(request))))
        # An empty line asks whether this process is up.
        reply = {} if request == b"\n" else handle(request)
        text = json.dumps(reply, ensure_ascii=False)
        replies.write(text.encode("utf-8", "surrogatepass") + b"\n")
        replies.flush()
        signal.alarm(0)


def confine(memory_bytes: int) -> None:
    """Give up core dumps and writing to files, and bound the memory that is added."""
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (0, 0))
    allow_memory(memory_bytes)
    if sys.platform != "linux":
        # Other systems take the limit and do not enforce it.
        threading.Thread(target=_watch_memory, daemon=True).start()


def allow_memory(memory_bytes: int) -> None:
    """Let this process hold so many bytes more than it does now, and no more."""
    global _peak_limit
    # The growth is bounded: some systems begin to count with the parent's peak.
    _peak_limit = _peak() + memory_bytes // _peak_unit()
    if sys.platform == "linux":
        with suppress(OSError, ValueError):
            limit = _address_space() + memory_bytes
            _, hard = resource.getrlimit(resource.RLIMIT_AS)
            if hard != resource.RLIM_INFINITY:
                limit = min(limit, hard)
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _address_space() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _watch_memory() -> None:
    """End this process when it holds too much memory."""
    while _peak() < _peak_limit:
        time.sleep(0.02)
    os._exit(OUT_OF_MEMORY)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _peak_unit() -> int:
    return 1 if sys.platform == "darwin" else 1024
