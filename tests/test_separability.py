"""Trivial rules that tell the sides of pairs apart."""

from __future__ import annotations

import pytest

from ster.documents.pair_sets.separability import find_rules, first_difference
from ster.errors import DocumentError


def shares(*pairs: tuple[str, str]) -> dict[str, float]:
    rules = find_rules([a.split() for a, _ in pairs], [b.split() for _, b in pairs])
    return {name: rule.share for name, rule in rules.items()}


def test_longer_or_shorter_sides_are_told_apart_by_length():
    assert shares(("a b", "c"), ("d e", "f"), ("g h", "i j"))["length"] == 5 / 6
    assert shares(("a", "b c"), ("d", "e f"), ("g", "h"))["length"] == 5 / 6
    rules = find_rules(["ab", "cd"], ["e", "f"])
    assert rules["length"].favours == "longer"
    assert find_rules(["a"], ["b"])["length"].favours is None


def test_a_thing_that_one_side_always_has_tells_all_apart():
    pairs = [(f"yes {n} x", f"no {n} y") for n in range(4)]
    assert shares(*pairs) == {"length": 0.5, "first": 1, "last": 1, "difference": 1}
    rules = find_rules(*[[p[i].split() for p in pairs] for i in range(2)])
    assert rules["first"].favours == "yes"


def test_what_occurs_in_one_pair_only_tells_nothing():
    assert shares(("a b", "c d"), ("e f", "g h"))["first"] == 0.5


def test_balanced_letters_tell_nothing_and_unbalanced_ones_their_share():
    a, b = ("say ( A )", "say ( B )"), ("say ( B )", "say ( A )")
    assert shares(a, b, a, b)["difference"] == 0.5
    assert shares(a, a, a, a, b)["difference"] == 0.8
    assert shares(a, a, a, a, b)["first"] == 0.5


@pytest.mark.parametrize(
    ("sides", "index"),
    [(("abc", "abd"), 2), (("ab", "abc"), 2), (("x", "y"), 0), (("ab", "ab"), None)],
)
def test_sides_first_differ_where_one_has_something_else_or_ends(sides, index):
    assert first_difference(*sides) == index


def test_an_empty_side_has_no_first_thing():
    assert find_rules([[], []], [[1], [1]])["first"].share == 1


@pytest.mark.parametrize("sides", [([], []), (["a"], [])])
def test_what_is_no_pairs_is_refused(sides):
    with pytest.raises(DocumentError, match="are no pairs$"):
        find_rules(*sides)
