"""Directions and steered text on a trained model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ster import PairSet, StrengthTrial, load

ASSETS = Path(__file__).resolve().parents[2] / "assets"
TRAITS = ("happy", "formal", "french")
MIDDLE = "10..20"


@pytest.fixture(scope="module")
def runtime(smollm2):
    return load(smollm2)


@pytest.fixture(scope="module")
def happy():
    return PairSet.load(ASSETS / "pairs_happy.json")


@pytest.mark.parametrize("name", ["cpu", "mlx-cpu"])
def test_the_greedy_answer_is_that_of_transformers(smollm2, shared, name):
    golden = json.loads((shared / "golden/smollm2/expected.json").read_bytes())
    answer = load(smollm2, device=name).generate(golden["greedy"]["prompt"])
    assert answer == golden["greedy"]["text"]


@pytest.mark.parametrize("trait", TRAITS)
def test_the_best_layer_tells_held_out_pairs_apart(runtime, trait):
    """Half of 24 pairs are held out; a random direction is right half the time."""
    pairs = PairSet.load(ASSETS / f"pairs_{trait}.json")
    selection = runtime.optimize(pairs, layers=MIDDLE, holdout=0.5)
    assert selection.best.accuracy >= 0.9
    evaluation = runtime.evaluate(pairs, selection.vector).document
    assert evaluation["layers"][0]["random_accuracy"]["mean"] < 0.65


def test_steering_makes_the_side_it_points_to_likelier(runtime, happy):
    """Fitted on one half of the pairs, tried on the other."""
    fitted = PairSet(trait_name="happy", pairs=happy.pairs[::2])
    tried = PairSet(trait_name="happy", pairs=happy.pairs[1::2])
    vector = runtime.train(fitted, layers=MIDDLE)
    trial = StrengthTrial.of("-4,4", batch_size=8, max_sequence=200)
    report = runtime.evaluate(tried, vector, trial).document
    candidates = report["strength"]["candidates"]
    ordered = [candidate["ordered"] for candidate in candidates]
    assert ordered[0] <= 0.25
    assert ordered[1] >= 0.75
    assert report["strength"]["selected_strength"] == 4.0


def test_the_answer_turns_with_the_strength(runtime, happy):
    vector = runtime.train(happy, layers=MIDDLE)
    answers = [
        runtime.generate(
            "How was your day?", steer=[vector * strength], max_new_tokens=40
        )
        for strength in (-4.0, 0.0, 4.0)
    ]
    assert len(set(answers)) == 3
    assert answers[1] == runtime.generate("How was your day?", max_new_tokens=40)
    scores = [sum(answer.count(word) for word in GLAD) for answer in answers]
    assert scores[0] == 0 < scores[2]


GLAD = ("fantastic", "wonderful", "great", "amazing", "beautiful", "glad", "thrilled")
