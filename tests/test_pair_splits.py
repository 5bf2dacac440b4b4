"""Seeded splits of pairs, as index arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from ster.documents.pair_sets.splits import (
    fold_indices,
    group_by_keys,
    shuffled,
    split_indices,
)
from ster.errors import UsageError

HALF: Any = 0.5


def test_what_shares_a_key_is_one_group_also_through_others():
    assert group_by_keys(["ab", "c", "bd", "e", "dc"]) == [0, 0, 0, 1, 0]
    assert group_by_keys([[], []]) == [0, 1]


def test_an_order_is_the_same_everywhere():
    assert shuffled(8, 3) == [6, 5, 0, 2, 1, 3, 4, 7]
    assert shuffled(8, 4) != shuffled(8, 3)


@pytest.mark.parametrize("seed", range(5))
def test_a_split_has_its_share_and_every_item_once(seed):
    first, second = split_indices(list(range(10)), 0.3, seed)
    assert (len(first), len(second)) == (3, 7)
    assert sorted(first + second) == list(range(10))
    assert (first, second) == (sorted(first), sorted(second))


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("seed", range(5))
def test_a_split_parts_no_group_and_leaves_no_part_empty(share, seed):
    groups = [0, 1, 0, 2, 2, 2, 3, 1]
    first, second = split_indices(groups, share, seed)
    assert first
    assert second
    assert {groups[i] for i in first}.isdisjoint(groups[i] for i in second)


def test_folds_hold_out_every_item_once_and_part_no_group():
    groups = [0, 0, 0, 1, 2, 3, 4, 5, 6]
    folds = fold_indices(groups, 3, 7)
    assert sorted(i for _, held in folds for i in held) == list(range(9))
    assert [len(held) for _, held in folds] == [3, 3, 3]
    for fit, held in folds:
        assert sorted(fit + held) == list(range(9))
        assert {groups[i] for i in fit}.isdisjoint(groups[i] for i in held)
    assert folds != fold_indices(groups, 3, 8)


@pytest.mark.parametrize(
    ("split", "sentence"),
    [
        (lambda: split_indices([0, 1], 0, 1), "share must be above zero and below one"),
        (lambda: split_indices([0, 1], 1.5, 1), "share must be above zero"),
        (lambda: split_indices([0, 1], float("nan"), 1), "share must be above zero"),
        (lambda: split_indices([0, 1], 0.5, HALF), "seed must be a whole number"),
        (lambda: split_indices([0, 0], 0.5, 1), "2 pairs cannot be split into 2 parts"),
        (lambda: fold_indices([0, 1], 1, 1), "the number of folds must be at least 2"),
        (lambda: fold_indices([0, 1], 3, 1), "2 pairs cannot be split into 3 parts"),
    ],
)
def test_a_split_that_cannot_be_is_refused(split, sentence):
    with pytest.raises(UsageError) as caught:
        split()
    assert caught.value.sentence.startswith(sentence)
