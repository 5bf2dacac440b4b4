"""How long it takes to read as many bytes as a token's weights once, and no more.

``reading_weights MODEL WIDTH`` prints ``{"seconds", "bytes", "way"}``, or null for a
model whose blocks are not ster's own. The bytes lie in memory as one array that no
cache holds; all cores read it at once, each a run of its own, in a few ways that do
next to nothing with what they read. The fastest pass of the fastest way counts: it is
the time that no program can write a token in less of, at one token at a time.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.machine import cores
from benchmarks.weights import token_values_of

F32 = NDArray[np.float32]
PASSES = 7
# Of larger models only so much is read; the time of the rest is as long for each byte.
MOST_BYTES = 2 << 30


def sum_up(values: F32) -> object:
    """Add all values, as numpy does it."""
    return np.add.reduce(values)


def square_up(values: F32) -> object:
    """Multiply the array by itself, as BLAS does it."""
    return np.dot(values, values)


def find_largest(values: F32) -> object:
    """Find the largest value."""
    return values.max()


WAYS: dict[str, Callable[[F32], object]] = {
    "sum": sum_up,
    "dot": square_up,
    "max": find_largest,
}


def main() -> None:
    """Print the time for a model."""
    model, width = sys.argv[1:]
    values = token_values_of(model)
    if values is None:
        print("null")
        return
    num_bytes = values.num_bytes(width)
    way, seconds = read(num_bytes, cores())
    print(json.dumps({"seconds": seconds, "bytes": num_bytes, "way": way}))


def read(num_bytes: int, num_threads: int) -> tuple[str, float]:
    """Time reading; return the fastest way and its seconds."""
    taken = min(num_bytes, MOST_BYTES)
    values = np.ones(max(taken // 4, num_threads), np.float32)
    runs = np.array_split(values, num_threads)
    scale = num_bytes / values.nbytes
    with threadpool_limits(1), ThreadPoolExecutor(num_threads) as pool:
        best = {
            name: min(timed(partial(read_once, pool, way, runs)) for _ in range(PASSES))
            for name, way in WAYS.items()
        }
    fastest = min(best, key=lambda name: best[name])
    return fastest, best[fastest] * scale


def read_once(
    pool: ThreadPoolExecutor, way: Callable[[F32], object], runs: Sequence[F32]
) -> None:
    """Read all runs, each in a thread of its own."""
    list(pool.map(way, runs))


def timed(work: Callable[[], None]) -> float:
    """Time one pass."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
