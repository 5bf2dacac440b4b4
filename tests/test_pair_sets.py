"""Pair sets in a notebook: taken, sliced, joined, split, and made of labels."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from ster import ContrastPair, PairSet, SterWarning
from ster.errors import DocumentError, UsageError

TEN = PairSet.of([(f"yes {n}", f"no {n}") for n in range(10)], trait_name="yes")


def numbers(pairs: PairSet) -> list[int]:
    return [int(pair.positive.split()[1]) for pair in pairs]


def test_mappings_and_tables_become_pairs():
    expected = (
        ContrastPair(positive="a", negative="b", prompt="p"),
        ContrastPair(positive="c", negative="d"),
    )
    rows: list[Any] = [
        {"question": "p", "answer_matching_behavior": "a",
         "answer_not_matching_behavior": "b"},
        {"positive": "c", "negative": "d", "source": 3},
    ]  # fmt: skip
    assert PairSet.of(rows).pairs == expected
    frame = pd.DataFrame(
        {"positive": ["a", "c"], "negative": ["b", "d"], "prompt": ["p", float("nan")]}
    )
    assert PairSet.of(frame).pairs == expected


def test_a_pair_set_is_taken_as_it_is():
    assert PairSet.of(TEN) == TEN
    assert PairSet.of(TEN, trait_name="x").trait_name == "x"


class Columnar:
    """What ``datasets`` hands over, as far as it is looked at."""

    def __init__(self, **columns: list[str]) -> None:
        self._columns = columns

    @property
    def column_names(self) -> list[str]:
        return [*self._columns]

    def __len__(self) -> int:
        return 1

    def __getitem__(self, name: str) -> list[str]:
        return self._columns[name]


def test_a_table_that_names_its_columns_is_one():
    table: Any = Columnar(negative=["b"], positive=["a"])
    assert PairSet.of(table).prompts == ["a", "b"]


@pytest.mark.parametrize(
    ("given", "sentence", "cause"),
    [
        (pd.DataFrame({"positive": ["a"]}), "a table of pairs needs a column for each "
         "side", "no `negative` among"),
        (pd.DataFrame([["a", "b", "c"]], columns=["positive", "negative", "positive"]),
         "the column positive is there twice", ""),
        ([{"positive": "a", "negative": 1}], "pair 1 cannot be read",
         "`negative` is no string"),
        ([{"positive": "a", "negative": float("nan")}], "pair 1 cannot be read",
         "no `negative` among"),
        ({"positive": "a", "negative": "b"}, "pairs must be a list of (positive, "
         "negative) texts, not dict", "ster.PairSet.load"),
    ],
)  # fmt: skip
def test_what_is_no_pairs_is_refused(given, sentence, cause):
    with pytest.raises(DocumentError) as caught:
        PairSet.of(given)
    assert caught.value.sentence == sentence
    assert "".join(caught.value.causes).startswith(cause)


def test_a_set_is_indexed_sliced_and_joined():
    assert TEN[3].positive == "yes 3"
    assert TEN[-1].positive == "yes 9"
    assert numbers(TEN[2:4]) == [2, 3]
    assert TEN[2:4].trait_name == "yes"
    both = TEN[:1] + PairSet.of([("yes 5", "b")], trait_name="five")
    assert (numbers(both), both.trait_name) == ([0, 5], "yes, five")
    assert (TEN[:1] + TEN[1:]) == TEN
    with pytest.raises(TypeError):
        TEN + (("a", "b"),)  # type: ignore[operator]  # noqa: RUF005
    with pytest.raises(DocumentError, match="contains no pairs$"):
        TEN[5:5]


def test_a_shuffle_and_a_split_follow_their_seed():
    mixed = numbers(TEN.shuffle(3))
    assert sorted(mixed) == numbers(TEN) != mixed
    assert mixed == numbers(TEN.shuffle(3)) != numbers(TEN.shuffle(4))
    first, second = TEN.split(0.7, seed=3)
    assert sorted(numbers(first) + numbers(second)) == list(range(10))
    assert (len(first), len(second)) == (7, 3)
    assert TEN.split(0.7, seed=3)[0] == first
    assert TEN.split(0.7, seed=4)[0] != first
    folds = TEN.folds(5, seed=1)
    assert [len(held) for _, held in folds] == [2] * 5
    assert sorted(n for _, held in folds for n in numbers(held)) == list(range(10))


@pytest.mark.parametrize(
    ("pairs", "groups"),
    [
        ([{"prompt": "p", "positive": "a", "negative": "b"},
          {"prompt": "q", "positive": "c", "negative": "d"},
          {"prompt": "p", "positive": "e", "negative": "f"}], [0, 1, 0]),
        ([("a", "b"), ("c", "d"), ("e", "a")], [0, 1, 0]),
        ([{"positive": "a", "negative": "b", "group": "g"},
          {"positive": "c", "negative": "d", "group": "g"}], [0, 0]),
        ([{"prompt": str(n), "positive": "(A)", "negative": "(B)"} for n in range(4)],
         [0, 1, 2, 3]),
        ([{"positive": "p", "negative": "p", "positive_system": str(n)}
          for n in range(5)], [0] * 5),
        ([("a", "b")] * 5 + [("c", "d")], [0] * 5 + [1]),
    ],
)  # fmt: skip
def test_pairs_that_share_something_stay_together(pairs, groups):
    assert PairSet.of(pairs).groups == groups


def test_pairs_that_all_belong_together_cannot_be_split():
    with pytest.raises(UsageError) as caught:
        PairSet.of([("a", "b"), ("b", "c")]).split(0.5)
    assert caught.value.causes[0].startswith("pairs that share a prompt or a side stay")


@pytest.mark.parametrize("seed", [-1, 0.5, "3", True])
def test_a_seed_that_is_none_is_refused(seed):
    for take in (
        lambda: TEN.shuffle(seed),
        lambda: TEN.split(0.5, seed=seed),
        lambda: TEN.folds(2, seed=seed),
        lambda: PairSet.from_labels(LABELLED, label="mood", positive="glad", seed=seed),
    ):
        with pytest.raises(UsageError, match="seed must be"):
            take()


LABELLED: list[Any] = [
    {"text": f"{value} {n}", "mood": value}
    for value, count in (("glad", 5), ("sad", 3))
    for n in range(count)
]


def test_labelled_prompts_are_paired_by_seed_and_the_rest_is_said():
    with pytest.warns(SterWarning) as said:
        pairs = PairSet.from_labels(LABELLED, label="mood", positive="glad", seed=1)
    assert str(said[0].message) == (
        '3 pairs by the label "mood"; 2 prompts of "glad" were left over'
    )
    assert pairs.trait_name == "glad"
    assert all(p.positive[:4] == "glad" and p.negative[:3] == "sad" for p in pairs)
    assert len({pair.positive for pair in pairs}) == 3
    assert {pair.negative for pair in pairs} == {"sad 0", "sad 1", "sad 2"}
    with pytest.warns(SterWarning):
        assert pairs == PairSet.from_labels(
            LABELLED, label="mood", positive="glad", seed=1
        )


@pytest.mark.parametrize(
    ("values", "positive"),
    [((1, 0), "1"), ((True, False), "true"), ((1.0, 0.0), 1), (("1", "0"), 1)],
)
def test_a_value_may_be_given_as_it_is_written(values, positive):
    rows: Any = [{"text": f"t{n}", "y": value} for n, value in enumerate(values)]
    pairs = PairSet.from_labels(rows, label="y", positive=positive)
    assert pairs.prompts == ["t0", "t1"]


@pytest.mark.parametrize(
    ("rows", "positive", "sentence"),
    [
        ([{"text": "a"}], "x", 'the prompts have no label "y"'),
        ([{"text": "a", "y": v} for v in "xyz"], "x",
         'the label "y" has 3 values, and pairs need two'),
        ([{"text": "a", "y": "x"}], "x",
         'the label "y" has 1 value, and pairs need two'),
        ([{"text": "a", "y": v} for v in "xz"], "q", 'no prompt has "q" as its label '
         '"y"'),
        ([{"text": "a", "y": "x"}, {"text": "b"}], "x", 'prompt 2 has no label "y"'),
        ([{"text": "a", "y": float("nan")}], "x", 'prompt 1 has no label "y"'),
        ([{"messages": [{"role": "system", "content": "s"},
                        {"role": "user", "content": "u"}], "y": v} for v in "xz"], "x",
         "prompt 1 is a chat of several turns, which is not paired by its label"),
    ],
)  # fmt: skip
def test_labels_that_make_no_pairs_are_refused(rows, positive, sentence):
    with pytest.raises(DocumentError) as caught:
        PairSet.from_labels(rows, label="y", positive=positive)
    assert caught.value.sentence == sentence
