"""Strengths of SmolLM2: what is fitted is chosen, and what is random is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ster import PairSet, Runtime, SteeringVector, StrengthTrial, load

LAYER = 24
TRIAL = StrengthTrial.of("-0.1n,0.1n")
SEEDS = range(1, 21)
GLAD = (
    *("Great, I love it!", "I am so happy!", "It is wonderful!", "What a lovely day!"),
    *("I feel great!", "A joy!", "I am delighted!", "It was lovely!", "So much fun!"),
)
SAD = (
    *("Awful, I hate it.", "I am so sad.", "It is terrible.", "What a horrible day."),
    *("I feel bad.", "A shame.", "I am unhappy.", "It was painful.", "So much grief."),
)
FITTED = 4


def of_answers(which: slice) -> PairSet:
    """Answer a question gladly and sadly."""
    sides = [
        {"prompt": "How was it?", "positive": glad, "negative": sad}
        for glad, sad in zip(GLAD[which], SAD[which], strict=True)
    ]
    return PairSet.of(sides, trait_name="happy")


@pytest.fixture(scope="module")
def runtime(smollm2: Path) -> Runtime:
    return load(smollm2, device="cpu")


@pytest.fixture(scope="module")
def fitted(runtime: Runtime) -> SteeringVector:
    return runtime.train(of_answers(slice(FITTED)), layers=[LAYER])


@pytest.fixture(scope="module")
def tried() -> PairSet:
    return of_answers(slice(FITTED, None))


def test_a_fitted_direction_is_chosen(runtime, fitted, tried):
    choice = runtime.evaluate(tried, fitted, TRIAL).strength
    assert choice is not None
    assert choice.selected is choice.candidates[1]


@pytest.mark.filterwarnings("ignore:no strength is chosen")
def test_of_twenty_random_directions_none_is(runtime, fitted, tried):
    """They have the length of the fitted one at the same strengths."""
    ordered = []
    for seed in SEEDS:
        drawn = np.random.default_rng(seed).standard_normal(fitted.array.shape)
        unit = (drawn / np.linalg.norm(drawn)).astype(np.float32)
        vector = SteeringVector(
            layers=(LAYER,),
            array=unit,
            model=fitted.model,
            trait_name="random",
            method="random",
            metadata=fitted.metadata,
        )
        choice = runtime.evaluate(tried, vector, TRIAL).strength
        assert choice is not None
        ordered.append(max(each.ordered for each in choice.candidates))
        assert choice.selected is None, seed
    # By ordered pairs some of them would have looked perfect.
    assert max(ordered) == 1
