"""The contrastive sets of benchmarks/pairs: what a measurement on them relies on."""

import json

import pytest

import ster
from benchmarks.make_pairs import PAIRS, made_sets

NAMES = sorted(path.stem for path in PAIRS.glob("*.json"))


def test_there_are_eight_kinds():
    assert NAMES == [
        "angry",
        "dreamy",
        "flattery",
        "happy",
        "harmful",
        "larger",
        "morality",
        "spanish",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_no_side_stands_twice_and_lengths_do_not_tell_the_sides_apart(name: str):
    pairs = ster.PairSet.load(PAIRS / f"{name}.json")
    assert len(pairs) == 48
    assert len(set(zip(pairs.asked, pairs.prompts, strict=True))) == 96
    longer = sum(len(pair.positive) - len(pair.negative) for pair in pairs)
    assert abs(longer) < 0.05 * sum(map(len, pairs.prompts))


@pytest.mark.parametrize(("name", "made"), made_sets().items())
def test_sets_that_are_made_lie_there_as_they_are_made(
    name: str, made: list[dict[str, str]]
):
    document = json.loads((PAIRS / f"{name}.json").read_text("utf-8"))
    assert document["pairs"] == made
