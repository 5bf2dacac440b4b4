"""What a pair set is said to be like."""

from __future__ import annotations

from typing import Any

import pytest

from ster import PairSet, load, write_toy_checkpoint
from ster.documents.pair_sets.lengths import Lengths

LETTERS = PairSet.of(
    [
        {
            "prompt": f"q {n}",
            "positive": f"I say {letter}",
            "negative": f"I say {other}",
        }
        for n, (letter, other) in enumerate([("(A)", "(B)")] * 5 + [("(B)", "(A)")])
    ],
    trait_name="letters",
)
LONG = PairSet.of([(f"word {n} and more", f"word {n}") for n in range(10)])


def test_the_letters_of_answers_are_counted_and_warned_of():
    found: Any = LETTERS.inspect().document
    assert found["pairs"] == 6
    assert found["differs_at"] == {"first": 0, "middle": 0, "last": 6, "never": 0}
    assert found["ends"]["last"] == [
        {"text": "(A)", "positive": 5, "negative": 1},
        {"text": "(B)", "positive": 1, "negative": 5},
    ]
    assert found["separability"]["last"] == {"share": 5 / 6, "favours": "(A)"}
    assert found["separability"]["first"]["share"] == 0.5
    assert found["prompts"] == {"different": 6, "most_used": 1, "without": 0}
    assert found["warnings"][0] == (
        'the last word of a side (as "(A)") tells 83% of the pairs apart: a direction '
        "that does no better may have found that alone"
    )


def test_sides_that_differ_in_length_are_warned_of():
    found: Any = LONG.inspect().document
    assert found["lengths"]["longer"] == {"positive": 10, "negative": 0, "neither": 0}
    assert found["lengths"]["unit"] == "characters"
    assert found["lengths"]["negative"]["median"] == 6
    assert found["lengths"]["p_value"] == pytest.approx(2 / 2**10)
    assert found["separability"]["length"] == {"share": 1.0, "favours": "longer"}
    assert found["warnings"][0].startswith(
        "the sides differ systematically in length: the longer one is positive in 100%"
    )


def test_balanced_pairs_are_not_warned_of():
    sides = [(f"{n}b x{n} c", f"{n}d y{n} e") for n in range(10)]
    balanced = [pair[::-1] if n % 2 else pair for n, pair in enumerate(sides)]
    assert PairSet.of(balanced).inspect().warnings == []


def test_repeats_are_counted_by_kind():
    pairs = PairSet.of([("a", "b"), ("a", "b"), ("c", "c"), ("b", "d"), ("e", "d")])
    inspection = pairs.inspect()
    assert inspection.document["repeats"] == {
        "pairs": 1,
        "positive": 1,
        "negative": 2,
        "equal_sides": 1,
        "texts_on_both_sides": 2,
    }
    assert inspection.warnings[:2] == [
        "of 5 pairs 1 repeats another, which counts twice in a fit",
        "of 5 pairs 1 has the same text on both sides, which no direction orders",
    ]


def test_an_inspection_shows_itself():
    shown = LETTERS.inspect()
    assert repr(shown).splitlines()[0] == "PairInspection('letters', 6 pairs)"
    assert "tells 83% of the pairs apart" in repr(shown)
    page = shown._repr_html_()
    assert "(A)" in page
    assert "0.833" in page


@pytest.mark.parametrize(("longer", "shorter"), [(600, 401), (600, 400)])
def test_many_and_few_pairs_are_judged_alike(longer, shorter):
    sizes = Lengths(
        unit="tokens",
        positive=[2] * longer + [1] * shorter,
        negative=[1] * longer + [2] * shorter,
    )
    assert sizes.chance == pytest.approx(3e-10, rel=0.5)


def test_a_model_counts_in_its_own_tokens(tmp_path):
    write_toy_checkpoint(tmp_path)
    model = load(tmp_path)
    pairs = PairSet.of([("the sea is calm .", "the sea is loud"), ("calm", "loud sea")])
    found: Any = model.inspect(pairs).document
    assert found["unit"] == "tokens"
    assert found["lengths"]["positive"] == {
        "least": 1,
        "median": 3,
        "mean": 3,
        "most": 5,
    }
    assert found["lengths"]["longer"] == {"positive": 1, "negative": 1, "neither": 0}
    assert found["differs_at"] == {"first": 1, "middle": 1, "last": 0, "never": 0}
