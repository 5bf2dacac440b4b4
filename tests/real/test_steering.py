"""Directions and steered text on a trained model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ster import PairSet, SteeringVector, StrengthTrial, load
from tests.real.golden import steering

ASSETS = Path(__file__).resolve().parents[2] / "assets"
TRAITS = ("happy", "formal", "french")
MIDDLE = "10..20"


@pytest.fixture(scope="module")
def runtime(smollm2):
    return load(smollm2)


@pytest.fixture(scope="module")
def happy():
    return PairSet.load(ASSETS / "pairs_happy.json")


@pytest.fixture(scope="module")
def drawn(runtime):
    """Return the vector that the golden file was steered with."""
    vectors = steering()
    return SteeringVector(
        layers=tuple(vectors),
        array=np.stack([*vectors.values()]),
        model=runtime.model,
        trait_name="nothing",
        method="caa",
    )


@pytest.mark.parametrize("name", ["cpu", "mlx-cpu"])
def test_the_greedy_answer_is_that_of_transformers_steered_and_not(
    smollm2, golden, drawn, name
):
    greedy, runtime = golden["greedy"], load(smollm2, device=name)
    for steer, expected in (([], "unsteered"), ([drawn], "steered")):
        answer = runtime.generate(
            greedy["prompt"], steer=steer, max_new_tokens=greedy["max_new_tokens"]
        )
        assert answer == greedy[expected]


@pytest.mark.parametrize("name", ["cpu", "mlx-cpu"])
def test_responses_have_the_log_probability_of_transformers(
    smollm2, golden, drawn, name
):
    runtime, scored = load(smollm2, device=name), golden["scored"]
    texts = [each["text"] for each in scored]
    ids = [runtime.response_tokens(text) for text in texts]
    assert ids == [each["token_ids"] for each in scored]
    for steer, expected in (([], "unsteered"), ([drawn], "steered")):
        found = runtime.score_responses(texts, steer=steer)
        assert found == pytest.approx([each[expected] for each in scored], rel=1e-5)


@pytest.mark.filterwarnings("ignore:.* as well as the best direction")
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
