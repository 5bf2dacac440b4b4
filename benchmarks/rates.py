"""The arithmetic of rates, which the tables share; it loads nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

from benchmarks import tables


def token_seconds(runs: Sequence[tuple[float, float]], tokens: int) -> float:
    """Tell how long a token takes: what is in both answers' times cancels.

    Args:
        runs: The times of a short answer and of a longer one.
        tokens: By how many it is longer.
    """
    return median((long - short) / tokens for short, long in runs)


def timer(work: Callable[[], object]) -> Callable[[], float]:
    """Return what times the work, after one run that warms up."""
    work()

    def once() -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    return once


def share(amount: float, seconds: float, most: float) -> float:
    """Tell what part of the most a second was reached."""
    return amount / seconds / most


def square_flops(size: int) -> int:
    """Count the multiplications and additions of one square product."""
    return 2 * size**3


def difference(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Measure the largest difference, by the largest value."""
    largest = max(map(abs, theirs))
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / largest


def count_same(ours: list[list[int]], theirs: list[list[int]]) -> tuple[int, int]:
    """Count the rows that are equal to the last token, and all of them."""
    pairs = list(zip(ours, theirs, strict=True))
    return sum(one == other for one, other in pairs), len(pairs)


def beside_reading(
    token: float, read_seconds: float, num_bytes: int
) -> tuple[str, str]:
    """Write a token's time beside that of reading its weights, and how many times."""
    rate = f"{num_bytes / read_seconds / 1e9:.1f} GB/s"
    times = f"{1e3 * token:.1f} ms / {1e3 * read_seconds:.1f} ms ({rate})"
    return times, tables.fine_ratio(token, read_seconds)
