"""Groups of things of which only the distances are known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


def average_linkage(distance: F64, number: int) -> tuple[int, ...]:
    """Join the two nearest groups until so many are left.

    Groups are as far apart as their members are on average. Of equal distances the
    first in the order of the members counts.

    Args:
        distance: Between each two, (num_items, num_items).
        number: Of groups, from 1 to the number of items.

    Returns:
        The group of each item, counted from 0 in the order of their first members.

    Source: Sokal and Michener 1958, known as UPGMA.
    """
    groups = [[item] for item in range(len(distance))]
    while len(groups) > number:
        one, other = min(
            combinations(range(len(groups)), 2),
            key=lambda both: distance[np.ix_(groups[both[0]], groups[both[1]])].mean(),
        )
        groups[one] += groups.pop(other)
    group_of = {item: index for index, group in enumerate(groups) for item in group}
    return tuple(group_of[item] for item in range(len(distance)))


def mean_silhouette(distance: F64, groups: Sequence[int]) -> float | None:
    """Measure how much nearer items are to their own group than to the next one.

    The mean over items that share their group with another; 1 is the best.

    Args:
        distance: Between each two, (num_items, num_items).
        groups: The group of each item.

    Returns:
        None where it says nothing: there is one group, or each item is alone in its.

    Source: Rousseeuw 1987.
    """
    numbers = np.array(groups)
    widths = []
    for item, own in enumerate(groups):
        fellows = (numbers == own) & (np.arange(len(numbers)) != item)
        others = {*groups} - {own}
        if not fellows.any() or not others:
            continue
        within = distance[item, fellows].mean()
        beyond = min(distance[item, numbers == other].mean() for other in others)
        if max(within, beyond) > 0:
            widths.append((beyond - within) / max(within, beyond))
    return float(np.mean(widths)) if widths else None
