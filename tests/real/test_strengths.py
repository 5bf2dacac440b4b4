"""Strengths of SmolLM2: what is fitted is chosen, and what is random is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ster import PairSet, Runtime, SteeringVector, StrengthTrial, load

LAYER = 24
TRIAL = StrengthTrial.of("-0.1n,0.1n")
SEEDS = range(1, 21)
PROMPTS = ("I feel so", "The day was", "She looked", "We are all", "It made me")
GLAD = ("happy", "joyful", "glad", "cheerful", "delighted")
SAD = ("sad", "gloomy", "sorry", "miserable", "upset")
# Of prompts and words the first are fitted to, the others tried.
FITTED_PROMPTS, FITTED_WORDS = 3, 2


def of_words(prompts: tuple[str, ...], words: slice) -> PairSet:
    """End each prompt with a glad word, and with a sad one."""
    sides = [
        {"prompt": prompt, "positive": glad, "negative": sad}
        for prompt in prompts
        for glad, sad in zip(GLAD[words], SAD[words], strict=True)
    ]
    return PairSet.of(sides, trait_name="happy")


@pytest.fixture(scope="module")
def runtime(smollm2: Path) -> Runtime:
    return load(smollm2, device="cpu", chat_template="off")


@pytest.fixture(scope="module")
def fitted(runtime: Runtime) -> SteeringVector:
    return runtime.train(
        of_words(PROMPTS[:FITTED_PROMPTS], slice(FITTED_WORDS)), layers=[LAYER]
    )


@pytest.fixture(scope="module")
def tried() -> PairSet:
    return of_words(PROMPTS[FITTED_PROMPTS:], slice(FITTED_WORDS, None))


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
