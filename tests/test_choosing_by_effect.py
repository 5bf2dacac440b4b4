"""Choosing by measured effect: against scores by hand, and what is not written."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from ster import (
    ContrastPair,
    PairSet,
    Runtime,
    SteeringVector,
    load,
)
from ster.documents.pair_sets.splits import split_indices
from ster.documents.pair_sets.wordings import advise_wordings
from ster.errors import DirectionError, SterError, UsageError
from ster.reporting import Progress, QuietReporter, SterWarning
from ster.runs.scoring import Scorer
from ster.vectors.effect_selection import (
    EffectCandidate,
    EffectSelection,
    Reading,
    WeakDirectionError,
)
from ster.vectors.effects import Effect, odd_parts, random_directions
from ster.vectors.selection import Baseline
from ster.vectors.trials import MAX_DAMAGE
from ster.workflows.neutral_answers import NEUTRAL_ANSWERS, encode_neutral

PAIRS = PairSet.of(
    [
        ("the sea is calm .", "the storm waves crash ."),
        ("the air is still .", "the wind howls ."),
        ("a soft breeze .", "thunder rolls ."),
        ("the boat rests .", "the boat is broken ."),
        ("no cloud at all .", "black clouds above ."),
        ("the rope is loose .", "a rope snaps ."),
        ("we sleep now .", "we shout and run ."),
        ("gulls sit on posts .", "gulls scream ."),
    ],
    trait_name="calm",
)
SEED = 3


@pytest.fixture(scope="module")
def selection(toy: Path) -> EffectSelection:
    with pytest.warns(SterWarning):
        return load(toy).optimize(PAIRS, layers="1,2", strength="0.3n", seed=SEED)


class ByHand:
    """What optimize measures at a layer, by scoring texts one vector at a time."""

    def __init__(self, runtime: Runtime, layer: int) -> None:
        self.runtime, self.layer = runtime, layer
        sides = zip(*((p.positive, p.negative) for p in PAIRS.pairs), strict=True)
        rows = [
            np.asarray(runtime.activations(texts, layers=[layer]))[:, 0].astype("f8")
            for texts in map(list, sides)
        ]
        self.differences = rows[0] - rows[1]
        self.norm = float(np.linalg.norm(np.concatenate(rows), axis=1).mean())
        self.halves = split_indices(PAIRS.groups, 0.5, SEED)

    def steer(self, direction: np.ndarray, sign: float) -> SteeringVector:
        step = sign * 0.3 * self.norm * direction / np.linalg.norm(direction)
        return SteeringVector.of(
            step, layers=[self.layer], model=self.runtime.model, trait_name="calm",
            method="caa",
        )  # fmt: skip

    def odd(self, direction: np.ndarray, half: list[int]) -> np.ndarray:
        texts = [text for i in half for text in (PAIRS[i].positive, PAIRS[i].negative)]
        up, down = (
            np.array(
                self.runtime.score_responses(texts, steer=self.steer(direction, s))
            )
            for s in (1.0, -1.0)
        )
        shifts = (up[0::2] - up[1::2]) - (down[0::2] - down[1::2])
        halves: np.ndarray = shifts / 2
        return halves

    def lost(self, direction: np.ndarray) -> float:
        questions, answers = zip(*NEUTRAL_ANSWERS, strict=True)
        tokens = sum(encode_neutral(self.runtime._session).num_counted)
        scores = [
            sum(self.runtime.score_responses(answers, prompts=questions, steer=steer))
            for steer in ((), self.steer(direction, 1.0), self.steer(direction, -1.0))
        ]  # fmt: skip
        return (scores[0] - min(scores[1:])) / tokens

    def cross(self) -> tuple[np.ndarray, float]:
        """Fit caa on each half and steer the other."""
        odd, damage = np.empty(len(PAIRS)), 0.0
        for at, half in enumerate(self.halves):
            direction = self.differences[self.halves[1 - at]].mean(axis=0)
            odd[half] = self.odd(direction, half)
            damage += self.lost(direction) / 2
        return odd, damage


def of(selection: EffectSelection, layer: int, method: str) -> EffectCandidate:
    found = [c for c in selection.candidates if (c.layer, c.method) == (layer, method)]
    (only,) = found
    return only


def test_effect_and_damage_are_those_of_scoring_by_hand(toy, device, selection):
    runtime = load(toy, device=device)
    if device == "cpu":
        found = selection
    else:
        with pytest.warns(SterWarning):
            found = runtime.optimize(PAIRS, layers="1,2", strength="0.3n", seed=SEED)
    measured = {}
    for layer in (1, 2):
        odd, damage = ByHand(runtime, layer).cross()
        measured[layer] = odd
        candidate = of(found, layer, "caa")
        near = 2e-5 if device == "cpu" else 2e-4
        assert candidate.effect is not None
        assert candidate.effect.mean == pytest.approx(odd.mean(), abs=near)
        error = odd.std(ddof=1) / math.sqrt(len(odd))
        assert candidate.effect.standard_error == pytest.approx(error, abs=near)
        assert candidate.damage == pytest.approx(damage, abs=near)


def test_random_directions_steer_where_the_best_one_does(toy, selection):
    hand = ByHand(load(toy), selection.best.layer)
    drawn = random_directions(10, 64, SEED).astype("f8")
    expected = [
        np.concatenate([hand.odd(each, half) for half in hand.halves]).mean()
        for each in drawn[:2]
    ]
    assert len(selection.random_effects) == 10
    assert selection.random_effects[:2] == pytest.approx(expected, abs=2e-5)
    assert selection.luckiest == max(map(abs, selection.random_effects))


class Heard(QuietReporter):
    """Keeps what is said of progress."""

    def __init__(self):
        self.said: list[Progress] = []

    def progress(self, progress: Progress) -> None:
        self.said.append(progress)


def test_progress_counts_all_that_is_steered_as_one(toy):
    heard = Heard()
    with pytest.warns(SterWarning):
        load(toy, reporter=heard).optimize(PAIRS, layers="1,2", seed=SEED)
    labels = [label for label, _ in groupby(heard.said, key=lambda each: each.label)]
    assert labels == ["reading pair", "scoring response", "scoring steered response"]
    for label in labels:
        said = [each for each in heard.said if each.label == label]
        assert len({(each.num_prompts, each.num_tokens) for each in said}) == 1
        done = [(each.prompts_done, each.tokens_done) for each in said]
        assert done == sorted(done)
        assert done[-1] == (said[0].num_prompts, said[0].num_tokens)
    both = len(PAIRS) + len(NEUTRAL_ANSWERS)
    # Two halves: at two layers with neutral answers, then ten at random, by threes.
    assert heard.said[-1].num_prompts == 2 * (2 * both + 4 * len(PAIRS))


def test_random_directions_do_not_score_neutral_answers(toy, monkeypatch):
    scored: list[tuple[int, int]] = []
    score_all = Scorer.score_all

    def counting(self, steerings, *words):
        scored.append((len(self.scoring.responses.token_ids), len(steerings)))
        return score_all(self, steerings, *words)

    monkeypatch.setattr(Scorer, "score_all", counting)
    with pytest.warns(SterWarning):
        load(toy).optimize(PAIRS, layers=[1], strength="0.3n", seed=SEED)
    both = len(PAIRS) + len(NEUTRAL_ANSWERS)  # the sides of half the pairs, and these
    assert {responses for responses, _ in scored} == {len(PAIRS), both}
    random = [count for responses, count in scored if responses == len(PAIRS)]
    assert sum(random) == 2 * 2 * 10  # halves, signs, directions


def test_the_best_is_surely_the_largest(selection):
    measured = [c for c in selection.candidates if c.effect is not None]
    lowest = [c.effect.interval[0] for c in measured]
    assert selection.best is measured[int(np.argmax(lowest))]
    assert [c.selected for c in selection.candidates].count(True) == 1
    assert selection.vector.layers == (selection.best.layer,)
    assert selection.vector.method == selection.best.method


def test_the_vector_is_fitted_on_all_pairs(toy, selection):
    best = selection.best
    whole = load(toy).train(PAIRS, method=best.method, layers=best.layer)
    assert np.array_equal(whole.array, selection.vector.array)
    assert "by effect at 0.3n" in selection.vector.metadata["selection"]


def test_a_seed_decides_the_halves(toy, selection):
    with pytest.warns(SterWarning):
        other = load(toy).optimize(PAIRS, layers="1,2", strength="0.3n", seed=SEED + 1)
    assert other.candidates[0].effect != selection.candidates[0].effect
    assert other.document["seed"] == SEED + 1


def test_the_odd_part_is_what_turns_round_with_the_vector():
    base = np.array([-10.0, -12.0, -8.0, -20.0])
    meaning = np.array([3.0, -1.0, 2.0, 0.5])
    damage = np.array([-5.0, -1.0, -2.0, -9.0])  # whichever way is steered
    up, down = base + meaning + damage, base - meaning + damage
    assert odd_parts(up, down) == pytest.approx([4.0, 1.5])


def test_an_effect_is_a_mean_with_its_error():
    effect = Effect.of(np.array([1.0, 2.0, 3.0, 6.0]))
    assert effect.mean == 3.0
    assert effect.standard_error == pytest.approx(math.sqrt(14 / 3) / 2)
    assert effect.interval is not None
    half = 3.182 * math.sqrt(14 / 3) / 2  # Student's t for three degrees of freedom
    assert effect.interval == pytest.approx((3 - half, 3 + half), abs=0.03)
    assert effect.lowest == effect.interval[0]


@pytest.mark.parametrize(
    ("odd", "lowest"), [([1.0], -math.inf), ([2.0, 2.0], 2.0), ([0, 0], 0.0)]
)
def test_of_one_pair_nothing_is_sure_and_of_equal_ones_all(odd, lowest):
    assert Effect.of(np.array(odd)).lowest == lowest


def reading(**changed) -> Reading:
    usual = Reading(
        accuracy=0.9,
        interval=(0.7, 0.97),
        margin=2.0,
        random=Baseline(mean=0.5, percentile_95=0.8),
        random_margin=1.0,
    )
    return replace(usual, **changed)


@pytest.mark.parametrize(
    ("changed", "beats"),
    [
        ({}, True),
        ({"accuracy": 0.7}, False),  # one random direction in twenty has 0.8
        ({"margin": 0.9}, False),
        # Where all pairs differ alike, random directions order all of them or none.
        ({"accuracy": 1.0, "random": Baseline(mean=0.5, percentile_95=1.0)}, True),
        ({"accuracy": 0.4, "random": Baseline(mean=0.2, percentile_95=0.3)}, False),
    ],
)
def test_a_candidate_beats_random_directions_by_accuracy_and_margin(changed, beats):
    assert reading(**changed).beats_random is beats


def chosen(effects: list[float], *, damage: float = 0.1, luck: float = 0.2):
    candidate = EffectCandidate(
        layer=2, method="caa", reading=reading(), selected=True, damage=damage,
        effect=Effect.of(np.array(effects)),
    )  # fmt: skip
    vector = SteeringVector.of(
        np.ones(4, "f4"), layers=[2], model="m", trait_name="calm", method="caa"
    )
    return EffectSelection(
        vector=vector, candidates=(candidate,), strength="0.2n",
        num_pairs=len(effects), num_scored=len(effects), num_folds=2, seed=0,
        random_effects=(-luck, luck / 2),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("selection", "doubt"),
    [
        (chosen([1.0, 1.2, 0.8, 1.1]), None),
        (chosen([-1.0, -1.2, -0.8]), "steers the wrong way"),
        (chosen([0.0, 0.0, 0.0]), "steers neither way: +0.000"),
        # Which way is not known.
        (chosen([-0.5, 0.3, -0.1]), "not clearly above zero: -0.100"),
        (chosen([-1.0]), "not clearly above zero: -1.000"),
        (chosen([1.0, -0.8, 1.5, 0.1]), "not clearly above zero"),
        (chosen([1.0]), "not clearly above zero"),
        (chosen([1.0, 1.2, 0.8, 1.1], luck=1.1), "no better than a random direction"),
        (chosen([1.0, 1.2, 0.8, 1.1], damage=MAX_DAMAGE + 0.1), "damages neutral"),
    ],
)
def test_doubts_say_what_is_wrong_with_the_best(selection, doubt):
    said = " ".join(selection.doubts)
    assert (doubt in said) if doubt else not said
    assert ("doubtful" in repr(selection)) is bool(doubt)
    assert ("doubt" in selection._repr_html_()) is bool(doubt)


def test_what_damages_ranks_below_all_others():
    fine = chosen([0.1, 0.2]).best
    broken = chosen([5.0, 5.1], damage=MAX_DAMAGE + 0.1).best
    assert broken.rank == -math.inf < fine.rank
    assert replace(fine, effect=None, damage=None).rank == -math.inf


def test_a_weak_direction_is_not_written_but_what_was_found_is_kept(toy, tmp_path):
    path = tmp_path / "calm.json"
    path.write_text("mine")
    with pytest.raises(WeakDirectionError) as refused:
        load(toy).optimize(PAIRS, layers="1,2", output=path)
    assert path.read_text() == "mine"
    assert refused.value.selection.doubts[0] == refused.value.sentence
    assert any("write_anyway=True" in cause for cause in refused.value.causes)
    handed = pickle.loads(pickle.dumps(refused.value))
    assert str(handed) == str(refused.value)
    assert handed.selection.document == refused.value.selection.document
    with pytest.warns(SterWarning, match=r"random|zero|wrong"):
        load(toy).optimize(PAIRS, layers="1,2", output=path, write_anyway=True)
    assert SteeringVector.load(path).trait_name == "calm"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"strength": 2.0}, "a share of each layer's norm, such as 0.1n, not 2"),
        ({"strength": "-0.1n"}, "not -0.1n"),
        ({"by": "luck"}, "unknown rule"),
        ({"by": "effect", "holdout": 0.2}, "holdout belongs to choosing by accuracy"),
        ({"by": "accuracy", "seed": 1}, "seed belongs to choosing by effect"),
        (
            {"holdout": 0.2, "strength": "0.1n"},
            "strength belongs to choosing by effect",
        ),
        ({"holdout": 0.2, "write_anyway": True}, "write_anyway belongs to choosing by"),
        ({"seed": 0.5}, "seed"),
        ({"seed": -1}, "seed must be at least zero, not -1"),
    ],
)
def test_what_does_not_belong_is_refused(toy, arguments, sentence):
    with pytest.raises(UsageError, match=sentence):
        load(toy).optimize(PAIRS, **arguments)


def test_pairs_that_cannot_be_halved_or_scored_are_refused(toy):
    runtime = load(toy)
    with pytest.raises(DirectionError, match="1 pair cannot be halved"):
        runtime.optimize(PairSet.of([("calm sea", "rough sea")]))
    turns = [
        ContrastPair(positive=word, negative=word, positive_system="be calm")
        for word in ("the sea", "the wind")
    ]
    pairs = PairSet(trait_name="calm", pairs=tuple(turns))
    with pytest.raises(SterError, match="system"):
        runtime.optimize(pairs)


@pytest.mark.parametrize("strength", ["1e25n", "3e38n"])
def test_a_strength_that_drowns_the_stream_is_refused(toy, tmp_path, strength):
    with pytest.raises(DirectionError, match="added after layer 1 is too long"):
        load(toy).optimize(
            PAIRS, layers=[1, 2], strength=strength, output=tmp_path / "v.json"
        )
    assert [*tmp_path.iterdir()] == []


def test_one_wording_is_advised_against():
    same = [(f"I am so happy {n}", f"I am so sad {n}") for n in range(9)]
    (advice,) = advise_wordings(PairSet.of(same).pairs)
    assert advice.startswith("9 of 9 pairs begin with 'I am so'")
    assert advise_wordings(PAIRS.pairs) == ()
    assert advise_wordings(PairSet.of(same[:2]).pairs) == ()


def test_a_report_has_both_rounds(selection):
    report = json.loads(json.dumps(selection.document))
    assert {"fold_accuracy", "random_accuracy", "effect", "effect_interval", "damage",
            "tied", "selected"} <= report["candidates"][0].keys()  # fmt: skip
    effects = [abs(each) for each in selection.random_effects]
    assert report["random_effect"]["largest"] == max(effects)
    squares = mean(each**2 for each in effects)
    assert report["random_effect"]["root_mean_square"] == pytest.approx(squares**0.5)
    assert report["doubts"] == list(selection.doubts)
