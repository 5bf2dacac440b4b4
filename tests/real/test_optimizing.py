"""Choosing by effect on SmolLM2: a trait is found, and where there is none, none is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ster import ContrastPair, PairSet, Runtime, SteeringVector, load
from ster.reporting import SterWarning
from ster.vectors.effect_selection import WeakDirectionError
from tests.real.kept import ROOT

LAYERS = (24, 26)
PAIRS = PairSet.load(ROOT / "benchmarks" / "pairs" / "happy.json")[:6]


def turned(pair: ContrastPair) -> ContrastPair:
    return replace(pair, positive=pair.negative, negative=pair.positive)


# Every second pair has its sides swapped: what the positive ones share is no trait.
MIXED = replace(
    PAIRS,
    pairs=tuple(
        turned(pair) if number % 2 else pair for number, pair in enumerate(PAIRS[:4])
    ),
)


@pytest.fixture(scope="module")
def runtime(smollm2: Path) -> Runtime:
    return load(smollm2, device="cpu", chat_template="off")


# Each pair has a word of the trait, which is also the first token that differs.
@pytest.mark.filterwarnings("ignore:the first token that differs")
def test_a_trait_is_found_and_written(runtime, tmp_path):
    path = tmp_path / "happy.json"
    selection = runtime.optimize(PAIRS, layers=LAYERS, output=path)
    assert selection.doubts == ()
    assert selection.effect.mean > 2 * selection.luckiest > 0
    assert selection.effect.lowest > 1
    written = SteeringVector.load(path)
    assert written.layers == (selection.best.layer,)
    assert written.method == selection.best.method
    assert (written.array == selection.vector.array).all()


def test_where_sides_are_mixed_nothing_is_found_and_nothing_written(runtime, tmp_path):
    with pytest.raises(WeakDirectionError) as refused:
        runtime.optimize(MIXED, layers=LAYERS, output=tmp_path / "happy.json")
    assert [*tmp_path.iterdir()] == []
    selection = refused.value.selection
    assert selection.effect.lowest < 0
    assert refused.value.sentence == selection.doubts[0]


def test_it_is_written_all_the_same_where_that_is_asked_for(runtime, tmp_path):
    path = tmp_path / "happy.json"
    with pytest.warns(SterWarning, match=r"at layer 24.*nats per pair") as said:
        selection = runtime.optimize(
            MIXED, layers=LAYERS[:1], output=path, write_anyway=True
        )
    assert tuple(str(each.message) for each in said) == selection.doubts
    assert SteeringVector.load(path).layers == LAYERS[:1]
