"""Spreads a block's rows over the cores: many small products, not one wide one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

# Rows in one step of a BLAS, whichever: slices of whole steps leave nothing to its
# slower paths.
GRAIN = 32
# Rows for which another thread pays.
LEAST_ROWS = 64

Item = TypeVar("Item")
Result = TypeVar("Result")


# How many threads BLAS has belongs to the process. Of runs that overlap one holds it to
# one, and gives back what it found; another would find what that one left.
_blas_is_held = threading.Lock()


class Threads:
    """A pool of threads, each of which runs BLAS on its own core.

    numpy releases the interpreter while it computes, so threads suffice. One product at
    a time on all cores would leave all but one idle in everything between the products.

    Args:
        num_threads: How many; the cores this process may use where it is not given.
    """

    def __init__(self, num_threads: int | None = None) -> None:
        self.num_threads = num_threads or usable_cores()
        self._pool, self._process = self._start(), os.getpid()
        self._blas = ThreadpoolController().select(user_api="blas")

    def map(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> list[Result]:
        """Apply a function to every item; results in order, the first error raised."""

        def quietly(item: Item) -> Result:
            with quiet():
                return function(item)

        if len(items) == 1:
            return [quietly(items[0])]
        with self._blas_on_one_core():
            return list(self._own_pool().map(quietly, items))

    @contextmanager
    def _blas_on_one_core(self) -> Iterator[None]:
        if not _blas_is_held.acquire(blocking=False):
            yield
            return
        try:
            with self._blas.limit(limits=1):
                yield
        finally:
            _blas_is_held.release()

    def _start(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.num_threads, "ster")

    def _own_pool(self) -> ThreadPoolExecutor:
        """Return this process's pool: a fork has none of its parent's threads."""
        if self._process != os.getpid():
            self._pool, self._process = self._start(), os.getpid()
        return self._pool

    def slices(self, num_rows: int, most: int) -> list[slice]:
        """Cut rows into slices of nearly equal size, at most ``most`` rows each.

        Each but the last is a multiple of ``GRAIN`` rows, which ``most`` is not less
        than. A few rows stay together: then the weights bound the work, not the rows,
        and BLAS itself reads them on all cores.
        """
        if num_rows < min(2 * LEAST_ROWS, most):
            return [slice(0, num_rows)]
        grains = -(-num_rows // GRAIN)
        count = max(-(-grains // (most // GRAIN)), 1)
        count = max(count, min(self.num_threads, num_rows // LEAST_ROWS))
        if count > self.num_threads:  # as many for every thread
            count = -(-count // self.num_threads) * self.num_threads
        bounds = [grains * part // count * GRAIN for part in range(count)]
        return [slice(a, b) for a, b in pairwise([*bounds, num_rows])]


def quiet() -> np.errstate:
    """Silence numpy's warnings: infinities are refused where they show in a result."""
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


def usable_cores() -> int:
    """Count the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
