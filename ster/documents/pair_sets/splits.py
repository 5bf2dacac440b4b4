"""Seeded splits of pairs, as lists of indices: what belongs together stays together.

The order comes from ``random.Random(seed).random()``, whose numbers are the same on
every platform and in every version of Python.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Sequence

from ster.errors import (
    UsageError,
    require_number,
    require_seed,
    require_whole_number,
)
from ster.text import counted, decimal


def group_by_keys(keys: Sequence[Iterable[Hashable]]) -> list[int]:
    """Put items that share a key into one group, and so on through what they share.

    Args:
        keys: Of each item.

    Returns:
        The group of each item: groups are counted from 0 in order of appearance.
    """
    parent = list(range(len(keys)))

    def root(item: int) -> int:
        while parent[item] != item:
            parent[item] = item = parent[parent[item]]
        return item

    first: dict[Hashable, int] = {}
    for item, those in enumerate(keys):
        for key in those:
            other = root(first.setdefault(key, item))
            parent[max(other, root(item))] = min(other, root(item))
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(i), len(numbers)) for i in range(len(keys))]


def shuffled(count: int, seed: int) -> list[int]:
    """Return the indices below ``count`` in an order that the seed decides.

    Raises:
        UsageError: The seed is no whole number, or below zero.
    """
    generator = random.Random(require_seed(seed))
    places = [generator.random() for _ in range(count)]
    return sorted(range(count), key=places.__getitem__)


def split_indices(
    groups: Sequence[int], share: float, seed: int
) -> tuple[list[int], list[int]]:
    """Split items in two, no group on both sides.

    Args:
        groups: The group of each item, as ``group_by_keys`` numbers them.
        share: Of the items that the first part is to have; it comes as close as the
            groups allow.
        seed: Decides which.

    Returns:
        Indices of the first and of the second part, both ascending and not empty.

    Raises:
        UsageError: The share is not between 0 and 1, the seed is no whole number, or
            there are fewer than two groups.
    """
    share = require_number(share, "share")
    if not 0 < share < 1:
        raise UsageError(
            f"share must be above zero and below one, not {decimal(share)}",
            field="share",
            found=share,
        )
    members = _members(groups)
    _check_parts(members, 2)
    wanted = share * len(groups)
    first: list[int] = []
    taken = 0
    for group in shuffled(len(members), seed):
        grown = len(first) + len(members[group])
        is_last = taken == len(members) - 1
        closer = abs(grown - wanted) < abs(len(first) - wanted)
        if not is_last and (closer or not first):
            first += members[group]
            taken += 1
    chosen = set(first)
    return sorted(chosen), [i for i in range(len(groups)) if i not in chosen]


def fold_indices(
    groups: Sequence[int], num_folds: int, seed: int
) -> list[tuple[list[int], list[int]]]:
    """Split items into folds of about the same size, no group in two of them.

    Args:
        groups: The group of each item, as ``group_by_keys`` numbers them.
        num_folds: How many.
        seed: Decides which.

    Returns:
        For each fold the indices outside it and those in it, ascending: what to fit on
        and what to hold out.

    Raises:
        UsageError: There are fewer than two folds or fewer groups than folds, or a
            number is none.
    """
    num_folds = require_whole_number(num_folds, "the number of folds")
    if num_folds < 2:
        raise UsageError(
            f"the number of folds must be at least 2, not {num_folds}",
            field="folds",
            found=num_folds,
        )
    members = _members(groups)
    _check_parts(members, num_folds)
    order = shuffled(len(members), seed)
    # Large groups first, or the last of them makes one fold much larger.
    order.sort(key=lambda group: -len(members[group]))
    folds: list[list[int]] = [[] for _ in range(num_folds)]
    for group in order:
        min(folds, key=len).extend(members[group])
    every = range(len(groups))
    held = [set(fold) for fold in folds]
    return [([i for i in every if i not in fold], sorted(fold)) for fold in held]


def _members(groups: Sequence[int]) -> list[list[int]]:
    members: dict[int, list[int]] = {}
    for item, group in enumerate(groups):
        members.setdefault(group, []).append(item)
    return list(members.values())


def _check_parts(members: Sequence[list[int]], num_parts: int) -> None:
    if len(members) < num_parts:
        num_items = sum(map(len, members))
        raise UsageError(
            f"{counted(num_items, 'pair')} cannot be split into {num_parts} parts",
            "pairs that share a prompt or a side stay together, which leaves "
            f"{counted(len(members), 'group')}",
            found=len(members),
            expected=num_parts,
        )
