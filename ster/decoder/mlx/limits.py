"""MLX's limits, which are the process's, while runs need their own."""

from __future__ import annotations

import threading
from collections.abc import Callable

import mlx.core as mx


class ProcessLimit:
    """A limit that runs raise, and that the last one gives back as it was found.

    Args:
        set_limit: Sets it and returns what it was before.
    """

    def __init__(self, set_limit: Callable[[int], int]) -> None:
        self._set_limit = set_limit
        self._lock = threading.Lock()
        self._runs = 0
        self._before = 0
        self._limit = 0

    def hold(self, limit: int) -> None:
        """Begin a run; the largest limit of those at work counts."""
        with self._lock:
            self._runs += 1
            self._limit = max(limit, self._limit) if self._runs > 1 else limit
            before = self._set_limit(self._limit)
            self._before = before if self._runs == 1 else self._before

    def widen(self, limit: int) -> None:
        """Allow more while the runs at work last."""
        with self._lock:
            if limit > self._limit:
                self._limit = limit
                self._set_limit(limit)

    def let_go(self) -> None:
        """End a run; the last one gives back the limit that it found."""
        with self._lock:
            self._runs -= 1
            if not self._runs:
                self._set_limit(self._before)


def set_wired_limit(limit: int) -> int:
    """Tell Metal how much to keep in memory, within what it allows.

    Weights that lie idle for a moment may otherwise be paged out, and the next token
    waits for them. Nothing happens where there is no such limit: on CUDA, on the cpu,
    and before macOS 15.

    Returns:
        What it was before.
    """
    if not mx.metal.is_available():
        return 0
    known = mx.device_info(mx.gpu)
    most = int(known.get("max_recommended_working_set_size", 0))
    try:
        return int(mx.set_wired_limit(min(limit, most)))
    except (ValueError, RuntimeError):
        return 0


# Freed buffers that are kept for reuse, and what is kept in memory.
buffer_cache = ProcessLimit(mx.set_cache_limit)
wired_memory = ProcessLimit(set_wired_limit)
