"""Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence

LEFT, RIGHT = ":--", "--:"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Draw a table whose first column is text and whose others are numbers."""
    rules = [LEFT, *[RIGHT] * (len(titles) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (titles, rules, *rows))


def ratio(larger: float, smaller: float) -> str:
    """Say how many times one number is the other."""
    return f"{larger / smaller:.1f}×" if smaller else "–"


def fine_ratio(larger: float, smaller: float) -> str:
    """Say the same with two decimals, for what is near 1."""
    return f"{larger / smaller:.2f}"


def seconds(value: float) -> str:
    """Write seconds."""
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def megabytes(count: int) -> str:
    """Write a number of bytes."""
    return f"{count / 1e6:,.0f} MB"


def both(ours: str, theirs: str) -> str:
    """Put two numbers of one kind into one cell."""
    return f"{ours} / {theirs}"
