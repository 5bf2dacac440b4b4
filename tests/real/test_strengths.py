"""Strengths of SmolLM2: what is fitted is chosen, and what is random is not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ster import PairSet, Runtime, SteeringVector, StrengthTrial, load
from ster.vectors.measured import StrengthChoice
from tests.real.kept import ROOT

HIDDEN_SIZE = 576
PROMPTS = ("I feel so", "The day was", "She looked", "We are all", "It made me")
GLAD = ("happy", "joyful", "glad", "cheerful", "delighted")
SAD = ("sad", "gloomy", "sorry", "miserable", "upset")
# Of prompts and words the first are fitted to, the others tried.
FITTED_PROMPTS, FITTED_WORDS = 3, 2


@dataclass(frozen=True, kw_only=True)
class Case:
    """What some random directions are tried on.

    Args:
        pairs: Makes the pairs.
        layers: Where it steers.
        strengths: All that may be chosen.
        seeds: Of the random directions.
    """

    pairs: Callable[[], PairSet]
    layers: tuple[int, ...]
    strengths: str
    seeds: range


def of_words(
    prompts: tuple[str, ...] = PROMPTS[FITTED_PROMPTS:],
    words: slice = slice(FITTED_WORDS, None),
    ending: str = "",
) -> PairSet:
    """End each prompt with a glad word, and with a sad one and an ending."""
    sides = [
        {"prompt": prompt, "positive": glad, "negative": sad + ending}
        for prompt in prompts
        for glad, sad in zip(GLAD[words], SAD[words], strict=True)
    ]
    return PairSet.of(sides, trait_name="happy")


def short_positives() -> PairSet:
    return of_words(ending=", and cold, and tired of it all")


def of_file(name: str, count: int) -> Callable[[], PairSet]:
    """Take the first pairs of a file."""
    return lambda: PairSet.load(ROOT / name)[:count]


CASES = {
    "late": Case(
        pairs=of_words,
        layers=(24,),
        strengths="-0.3n,-0.1n,0.1n,0.3n",
        seeds=range(1, 7),
    ),
    "two layers": Case(
        pairs=of_words,
        layers=(21, 27),
        strengths="-0.2n,-0.1n,0.1n,0.2n",
        seeds=range(7, 10),
    ),
    "early": Case(
        pairs=of_words, layers=(4,), strengths="-0.05n,0.05n", seeds=range(10, 12)
    ),
    "short positives": Case(
        pairs=short_positives,
        layers=(18,),
        strengths="-0.4n,0.4n",
        seeds=range(12, 15),
    ),
    "sentences": Case(
        pairs=of_file("assets/pairs_happy.json", 3),
        layers=(20,),
        strengths="-0.1n,0.1n",
        seeds=range(15, 17),
    ),
    "numbers": Case(
        pairs=of_file("benchmarks/pairs/larger.json", 3),
        layers=(14,),
        strengths="-0.2n,0.2n",
        seeds=range(17, 19),
    ),
    "answers": Case(
        pairs=of_file("benchmarks/pairs/flattery.json", 3),
        layers=(24,),
        strengths="-0.2n,0.2n",
        seeds=range(19, 21),
    ),
}
# Elsewhere so few pairs do not tell even a fitted direction from random ones.
CHOSEN = ("late", "two layers")


@pytest.fixture(scope="module")
def runtime(smollm2: Path) -> Runtime:
    return load(smollm2, device="cpu", chat_template="off")


def measure(runtime: Runtime, case: Case, vector: SteeringVector) -> StrengthChoice:
    # Damage refuses none: only the effect and chance do.
    trial = StrengthTrial.of(case.strengths, max_damage=math.inf)
    choice = runtime.evaluate(case.pairs(), vector, trial).strength
    assert choice is not None
    return choice


def draw(runtime: Runtime, case: Case, seed: int) -> SteeringVector:
    """Draw a direction of length 1 for each layer; the pairs' norms will do."""
    shape = len(case.layers), HIDDEN_SIZE
    drawn = np.random.default_rng(seed).standard_normal(shape)
    unit = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return SteeringVector(
        layers=case.layers,
        array=unit.astype(np.float32),
        model=runtime.model,
        trait_name="random",
        method="random",
    )


@pytest.mark.parametrize("name", CHOSEN)
def test_a_fitted_direction_is_chosen(runtime, name):
    case = CASES[name]
    others = of_words(PROMPTS[:FITTED_PROMPTS], slice(FITTED_WORDS))
    fitted = runtime.train(others, layers=[*case.layers])
    choice = measure(runtime, case, fitted)
    assert choice.selected is choice.candidates[-1]


def test_twenty_random_directions_are_tried():
    assert [seed for case in CASES.values() for seed in case.seeds] == [*range(1, 21)]


@pytest.mark.filterwarnings("ignore:no strength is chosen")
@pytest.mark.filterwarnings("ignore:negative sides are longer")
@pytest.mark.parametrize("name", CASES)
def test_no_random_direction_is(runtime, name):
    case = CASES[name]
    ordered = []
    for seed in case.seeds:
        choice = measure(runtime, case, draw(runtime, case, seed))
        assert choice.selected is None, seed
        ordered.append([each.ordered for each in choice.candidates])
    # By ordered pairs some would have looked perfect, in one case at both signs.
    if name == "late":
        assert np.max(ordered) == 1
    if name == "short positives":
        assert np.min(ordered, axis=1).max() == 1
