"""What steering at a strength is worth: effect, damage, chance, and what is chosen."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ster import (
    PairSet,
    SteeringVector,
    StrengthTrial,
    load,
    write_toy_checkpoint,
)
from ster.errors import CapacityError, DirectionError, UsageError
from ster.reporting import SterWarning
from ster.runtime import Runtime
from ster.vectors.controls import (
    ControlEffects,
    student_quantile,
    student_tail,
    turn_at_random,
)
from ster.vectors.effects import Effect
from ster.vectors.measured import choose
from ster.vectors.side_rises import SideLengths, SideRises
from ster.workflows.neutral_answers import NEUTRAL_ANSWERS
from ster.workflows.strength_scores import score_in_slices, spread
from tests import made

LONG = [
    ("the sea is calm .", "the wind"),
    ("a soft breeze .", "thunder"),
    ("the air is still .", "the storm"),
    ("the boat rests .", "waves"),
    ("the sea is still .", "a storm"),
    ("the boat is calm .", "the waves"),
]


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    write_toy_checkpoint(tmp_path / "toy")
    return tmp_path / "toy"


@pytest.fixture
def runtime(toy: Path, device: str) -> Runtime:
    return load(toy, device=device)


@pytest.mark.parametrize(
    ("t", "freedom", "expected"),
    [
        # Of the tables of Student's distribution, one-sided.
        (1.0, 1, 0.25),
        (12.706, 1, 0.025),
        (2.920, 2, 0.05),
        (2.353, 3, 0.05),
        (4.144, 10, 0.001),
        (1.812, 10, 0.1 / 2),
        (-1.812, 10, 0.95),
        (2.086, 20, 0.025),
        (2.080, 21, 0.025),
    ],
)
def test_the_tail_is_that_of_the_tables(t, freedom, expected):
    assert student_tail(t, freedom) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(
    ("tail", "freedom", "expected"),
    [
        (0.025, 1, 12.706),
        (0.001, 1, 318.31),
        (0.05, 3, 2.353),
        (0.001, 10, 4.144),
        (0.5, 10, 0.0),
    ],
)
def test_a_quantile_is_that_of_the_tables(tail, freedom, expected):
    found = student_quantile(tail, freedom)
    assert found == pytest.approx(expected, rel=2e-4, abs=1e-9)


def test_controls_are_summed_up_about_zero():
    controls = ControlEffects(effects=(3.0, -4.0), own=5.0, num_pairs=2)
    assert controls.rms == pytest.approx(12.5**0.5)
    assert controls.largest == 4.0
    # With two degrees of freedom the tail is 1/2 - t / (2 √(2 + t²)), here t² = 2.
    assert controls.share == pytest.approx(0.5 - 0.5 * 0.5**0.5)
    assert controls.document["effect_largest"] == 4.0
    assert controls.reached_by(controls.share) == pytest.approx(5.0)


@pytest.mark.parametrize(("own", "share"), [(1.0, 0.0), (0.0, 1.0), (-1.0, 1.0)])
def test_where_no_control_does_anything_any_effect_is_more(own, share):
    controls = ControlEffects(effects=(0.0, 0.0), own=own, num_pairs=2)
    assert controls.share == share


def test_turned_copies_keep_lengths_and_angles_and_nothing_else():
    vector = np.random.default_rng(3).standard_normal((3, 40)).astype(np.float32)
    copies = turn_at_random(vector, 4, seed=0)
    assert copies.shape == (4, 3, 40)
    for copy in copies:
        np.testing.assert_allclose(copy @ copy.T, vector @ vector.T, rtol=1e-4)
        assert np.abs(copy - vector).max() > 0.5
    assert np.abs(copies[0] - copies[1]).max() > 0.5
    np.testing.assert_array_equal(copies, turn_at_random(vector, 4, seed=0))


def test_turned_copies_point_evenly_over_all_ways():
    """Each component of a random unit vector has mean 0 and variance 1/width."""
    copies = turn_at_random(np.eye(1, 8, dtype=np.float32), 2000, seed=1)[:, 0]
    assert np.abs(copies.mean(axis=0)).max() < 0.04
    np.testing.assert_allclose(copies.var(axis=0), 1 / 8, atol=0.02)


def test_rises_of_the_sides_by_hand():
    """Two pairs: sides of 2, 4, 5 and 10 tokens."""
    rises = SideRises.of(
        up=np.array([-1.0, -6.0, -5.0, -20.0]),
        down=np.array([-3.0, -4.0, -10.0, -10.0]),
        unsteered=np.array([-2.0, -4.0, -10.0, -15.0]),
        lengths=[2, 4, 5, 10],
    )
    assert rises.positive == (1 + 5) / 2
    assert rises.negative == (-2 - 5) / 2
    assert rises.positive_per_token == pytest.approx((0.5 + 1) / 2)
    assert rises.negative_per_token == pytest.approx((-0.5 - 0.5) / 2)
    # Half of the difference per token: positive 0.5, 0.5; negative -0.25, -0.5.
    assert rises.effect_per_token == pytest.approx((0.75 + 1.0) / 2)


def test_a_side_without_tokens_that_count_does_not_rise():
    nothing = np.zeros(2)
    rises = SideRises.of(nothing, nothing, nothing, [0, 1])
    assert (rises.positive_per_token, rises.effect_per_token) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("positive", "negative", "chance"),
    # Two-sided sign tests: 2/2⁶, 2·(1+8)/2⁸, 2·(1+7)/2⁷, and what is no doubt at all.
    [(6, 0, 2 / 64), (1, 7, 18 / 256), (6, 1, 16 / 128), (0, 0, 1.0), (3, 3, 1.0)],
)
def test_lengths_are_compared_as_coins_are(positive, negative, chance):
    found = SideLengths.of([3, 2] * positive + [2, 3] * negative + [4, 4])
    assert (found.positive_longer, found.negative_longer) == (positive, negative)
    assert found.chance == chance
    assert (found.doubt is None) == (chance >= 0.05)


def test_lengths_that_differ_are_said_with_what_they_do():
    found = SideLengths.of([5, 2] * 7)
    assert found.doubt == (
        "positive sides are longer in 7 of 7 pairs "
        "(5.0 tokens on average, negative 2.0): all that steering damages lowers the "
        "mean shift and the share of pairs ordered, not the effect"
    )
    assert "damages raises the mean shift" in (SideLengths.of([2, 5] * 7).doubt or "")


@pytest.mark.parametrize(("alike", "said"), [(5, True), (6, False)])
def test_lengths_that_are_alike_in_half_of_all_pairs_are_no_doubt(alike, said):
    found = SideLengths.of([5, 2] * 6 + [4, 4] * alike)
    assert (found.doubt is not None) == said


def effect(low: float, high: float) -> Effect:
    return Effect(mean=(low + high) / 2, standard_error=0.1, interval=(low, high))


def test_the_highest_lower_bound_is_chosen_and_not_the_mean():
    rows = [
        made.measured_strength(1.0, 1.0),
        made.measured_strength(2.0, effect=9.0),
        made.measured_strength(3.0, effect=9.0),
    ]
    rows[0] = replace(rows[0], effect=effect(1.0, 2.0))
    rows[1] = replace(rows[1], effect=effect(0.5, 9.0))
    rows[2] = replace(rows[2], effect=effect(1.0, 2.0))
    assert [each.selected for each in choose(rows, 0.5)] == [True, False, False]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (
            {"damage": 0.51},
            "it takes 0.51 nats per token of neutral answers (at most 0.5)",
        ),
        (
            {"effect": effect(-0.25, 2.25)},
            "its effect, +1.00 (95 % interval -0.25 to +2.25), does not lie above zero",
        ),
        (
            {"effect": Effect(mean=1.0, standard_error=None, interval=None)},
            "its effect, +1.00 in a single pair, does not lie above zero",
        ),
        (
            # With one degree of freedom the tail at 1 is a quarter.
            {"controls": ControlEffects(effects=(1.0,), own=1.0, num_pairs=2)},
            "25% of random directions have as large an effect (at most 1 in 1000)",
        ),
        (
            {"controls": ControlEffects(effects=(1.0,), own=-1.0, num_pairs=2)},
            "75% of random directions have as large an effect (at most 1 in 1000)",
        ),
    ],
)
def test_what_speaks_against_a_strength_is_said_of_the_nearest(parts, reason):
    nearest = replace(made.measured_strength(4.0), **parts)
    worse = replace(made.measured_strength(8.0, -3.0), damage=2.0)
    chosen = replace(made.strength_choice(), candidates=choose([worse, nearest], 0.5))
    assert chosen.selected is None
    (doubt,) = chosen.doubts
    assert doubt == f"no strength is chosen: the nearest is 4, but {reason}"


def test_strength_0_alone_steers_nothing():
    zero = replace(made.measured_strength(0.0), effect=effect(0.0, 0.0))
    choice = replace(made.strength_choice(), candidates=(zero,))
    assert [*choice.doubts] == ["no strength is chosen: at 0 nothing is steered"]


def test_without_controls_a_strength_may_be_chosen():
    row = made.measured_strength(1.0, controls=None)
    assert choose([row], 0.5)[0].selected
    assert row.document["random"] is None


def shifts(runtime: Runtime, pairs: PairSet, steer: Sequence[Any]) -> Any:
    scores = np.array(runtime.score_responses(pairs.prompts, steer=steer))
    return scores[0::2] - scores[1::2]


def test_effects_and_damage_are_those_of_what_the_runtime_scores(runtime: Runtime):
    pairs = PairSet.of(LONG[:3])
    vector = runtime.train(pairs, layers=[1, 2])
    choice = measure(runtime, pairs, vector, "-3,0.5n,3")
    asked, answers = map(list, zip(*NEUTRAL_ANSWERS, strict=True))
    plain = sum(runtime.score_responses(answers, prompts=asked))
    for each, word in zip(choice.candidates, ["-3", "0.5n", "3"], strict=True):
        there, back = vector.at(word), vector.at(word) * -1
        up, down = (shifts(runtime, pairs, [steer]) for steer in (there, back))
        odd = (up - down) / 2
        assert each.effect.mean == pytest.approx(odd.mean(), abs=1e-4)
        assert each.effect.standard_error == pytest.approx(
            odd.std(ddof=1) / 3**0.5, abs=1e-4
        )
        number = float(word.removesuffix("n"))
        assert each.slope == pytest.approx(odd.mean() / number, abs=1e-3)
        rise = up - shifts(runtime, pairs, [])
        assert each.rises.positive - each.rises.negative == pytest.approx(
            rise.mean(), abs=1e-4
        )
        fallen = plain - sum(
            runtime.score_responses(answers, prompts=asked, steer=[there])
        )
        assert each.damage * NUM_TOKENS == pytest.approx(fallen, abs=1e-2)
    first, _, last = choice.candidates
    assert first.effect.mean == pytest.approx(-last.effect.mean, abs=1e-6)


# Of the neutral answers: to the toy each word is one, each point and comma.
NUM_TOKENS = 9 + 9 + 10 + 10 + 8 + 11 + 8 + 10


def measure(
    runtime: Runtime, pairs: PairSet, vector: SteeringVector, text: str, **how: Any
) -> Any:
    with pytest.warns(SterWarning, match="no strength is chosen"):
        evaluation = runtime.evaluate(pairs, vector, StrengthTrial.of(text, **how))
    return evaluation.strength


def test_controls_are_the_effects_of_turned_copies(runtime: Runtime):
    pairs = PairSet.of(LONG[:3])
    vector = runtime.train(pairs, layers=[1, 2])
    choice = measure(runtime, pairs, vector, "-2,2,4", random_directions=3)
    copies = turn_at_random(vector.array, 3, seed=0)
    for each in choice.candidates:
        expected = []
        for copy in copies:
            steer = SteeringVector(
                layers=vector.layers,
                array=copy,
                model=vector.model,
                trait_name="turned",
                method="random",
            )
            up = shifts(runtime, pairs, [steer * each.strength])
            down = shifts(runtime, pairs, [steer * -each.strength])
            expected.append(((up - down) / 2).mean())
        assert each.controls.effects == pytest.approx(expected, abs=1e-4)
        assert each.controls.own == pytest.approx(each.effect.mean)


def test_controls_see_few_pairs_of_many(toy: Path):
    runtime = load(toy, device="cpu")
    pairs = PairSet.of(LONG * 4)
    with pytest.warns(SterWarning, match="as well as the best direction"):
        vector = runtime.train(pairs, layers=[2])
    with pytest.warns(SterWarning) as caught:
        found = runtime.evaluate(pairs, vector, StrengthTrial.of("2")).strength
    every = [str(each.message) for each in caught]
    said = [each for each in every if "as well as the best direction" not in each]
    assert said[0].startswith("positive sides are longer in 24 of 24 pairs")
    assert said[1].startswith("no strength is chosen: the nearest is 2, but")
    assert found is not None
    (each,) = found.candidates
    assert each.controls is not None
    assert (each.controls.num_pairs, len(each.controls.effects)) == (16, 10)
    chosen = PairSet.of([pairs.pairs[number] for number in spread(24, 16)])
    up, down = (shifts(runtime, chosen, [vector * s]) for s in (2, -2))
    assert each.controls.own == pytest.approx(((up - down) / 2).mean(), abs=1e-4)


def test_pairs_are_taken_evenly_from_first_to_last():
    assert spread(3, 16) == [0, 1, 2]
    assert spread(9, 5) == [0, 2, 4, 6, 8]
    assert len(set(spread(17, 16))) == 16


def test_without_random_directions_nothing_is_said_of_chance(runtime: Runtime):
    pairs = PairSet.of(LONG[:3])
    vector = runtime.train(pairs, layers=[1])
    choice = measure(runtime, pairs, vector, "1", random_directions=0, max_damage=-0.0)
    assert choice.candidates[0].controls is None
    assert choice.max_damage == 0


@pytest.mark.parametrize("name", ["random_directions", "max_damage"])
@pytest.mark.parametrize(
    ("number", "kind"), [(-1, DirectionError), ("8", UsageError), (None, UsageError)]
)
def test_numbers_of_a_trial_that_are_none_are_refused(name, number, kind):
    with pytest.raises(kind) as caught:
        StrengthTrial.of([1], **{name: number})
    assert (caught.value.field, caught.value.found) == (name, number)


@pytest.mark.parametrize("count", [1001, 10**12, 10**30])
def test_more_random_directions_than_anybody_scores_are_refused(count):
    with pytest.raises(DirectionError, match="random_directions must be at most 1000"):
        StrengthTrial.of([1], random_directions=count)
    assert StrengthTrial.of([1], random_directions=1000)


@pytest.mark.parametrize(
    ("bound", "written"), [(np.float32(0.5), 0.5), (math.inf, None), (10**400, None)]
)
def test_any_bound_is_written_as_json(bound, written):
    trial = StrengthTrial.of([1], max_damage=bound)
    report = replace(made.strength_choice(), max_damage=trial.max_damage).document
    assert json.loads(json.dumps(report, allow_nan=False))["max_damage"] == written


def test_a_bound_that_is_no_number_is_refused():
    with pytest.raises(DirectionError, match="max_damage must not be below zero"):
        StrengthTrial.of([1], max_damage=float("nan"))


def test_steerings_run_in_slices_where_memory_is_short():
    """Five do not fit, nor three, but two do."""
    asked: list[int] = []

    class Planned:
        def __init__(self, size: int) -> None:
            self.size = size

        def __enter__(self) -> Planned:
            return self

        def __exit__(self, *_: object) -> None: ...

        def open(self) -> Planned:
            return self

    def plan(size: int) -> Any:
        asked.append(size)
        if size > 2:
            raise CapacityError("too large")
        return Planned(size)

    def score(planned: Any, steerings: Sequence[Any]) -> list[int]:
        assert len(steerings) <= planned.size
        return [each[0] for each in steerings]

    steerings: Any = [{0: number} for number in range(5)]
    assert score_in_slices(plan, score, steerings) == [0, 1, 2, 3, 4]
    assert asked == [5, 3, 2]

    def refuse(size: int) -> Any:
        raise CapacityError("too large")

    with pytest.raises(CapacityError):
        score_in_slices(refuse, score, steerings)
