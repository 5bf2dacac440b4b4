"""Trivial features of pairs that a direction has to do better than."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from ster import PairSet, SterWarning, load, write_toy_checkpoint
from ster.cli.tables.drawing import draw
from ster.cli.tables.effects import draw_effects
from ster.documents.pair_sets.sign_test import sign_test
from ster.runtime import Runtime
from ster.vectors.confounds import Confound, find_confounds, warn_of
from ster.vectors.selection import Selection
from ster.workflows.choosing_by_effect import optimize_by_effect

WORDS = ["sea", "wind", "lake", "air", "tree", "breeze", "moon", "boat"]


def answers(num_a: int, num_b: int) -> list[list[str]]:
    """Return sides of pairs whose positive answer is A so often, and B so often."""
    a, b = ["(", "A", ")"], ["(", "B", ")"]
    return [side for pair in [(a, b)] * num_a + [(b, a)] * num_b for side in pair]


def features(found: tuple[Confound, ...]) -> dict[str, float]:
    return {each.feature: each.share for each in found}


@pytest.mark.parametrize(
    ("num_a", "num_b", "accuracy", "found"),
    [
        (14, 2, 0.875, {"difference": 0.875}),
        (14, 2, 0.8, {"difference": 0.875}),
        (14, 2, 0.9375, {}),  # the direction knows more than the letter
        (8, 8, 0.1, {}),
        (9, 7, 0.1, {}),  # which chance does often
        (2, 14, 0.875, {"difference": 0.875}),
    ],
)
def test_letters_that_are_not_balanced_are_found(num_a, num_b, accuracy, found):
    assert features(find_confounds(answers(num_a, num_b), accuracy)) == found


def test_a_confound_says_what_is_positive():
    (letter,) = find_confounds(answers(14, 2), 0.5)
    assert letter.document == {
        "favours": "A",
        "feature": "difference",
        "share": 0.875,
    }
    assert str(letter) == 'the first token that differs (as "A": 88%)'
    sides: list[list[str]] = [["so"] * (1 + n % 2) for n in range(20)]
    (length,) = find_confounds(sides, 1.0)[:1]
    assert str(length) == "length (the shorter side is positive: 100%)"
    assert warn_of([length], 1.0).startswith(
        "length (the shorter side is positive: 100%) tells the sides of these pairs "
        "apart as well as the best direction, which orders 100%: it may have found"
    )


def test_a_share_is_that_of_the_pairs_that_the_direction_was_measured_on():
    sides = answers(14, 2)  # the last two are the other way round
    assert features(find_confounds(sides, 0.5, measured=range(12, 16))) == {
        "difference": 0.5
    }
    assert find_confounds(sides, 0.75, measured=range(12, 16)) == ()
    assert features(find_confounds(sides, 1.0, measured=range(4))) == {"difference": 1}


def test_an_accuracy_of_float32_is_met_by_the_same_share():
    assert features(find_confounds(answers(80, 40), 0.6666667)) == {
        "difference": pytest.approx(2 / 3)
    }


@pytest.mark.parametrize("num_pairs", [1, 2, 3, 4, 5, 6, 7])
def test_few_pairs_warn_of_nothing_though_one_feature_tells_all_apart(num_pairs):
    assert find_confounds(answers(num_pairs, 0), 0.0) == ()


def test_eight_pairs_that_one_feature_tells_apart_are_enough():
    assert features(find_confounds(answers(8, 0), 1.0)) == {"difference": 1}


@pytest.mark.parametrize("num_pairs", [5, 8, 12, 24])
def test_sides_that_chance_made_seldom_warn(num_pairs):
    """Even of a direction that orders nothing, which every feature beats."""
    draw = random.Random(num_pairs)
    alarms = 0
    for _ in range(300):
        sides = [
            draw.choices(WORDS, k=draw.randint(3, 9)) for _ in range(2 * num_pairs)
        ]
        alarms += bool(find_confounds(sides, 0.0))
    assert alarms <= 300 * 0.05


@pytest.mark.parametrize(
    ("counts", "chance"),
    [((0, 7), 2 / 2**7), ((8, 0), 2 / 2**8), ((3, 3), 1.0), ((0, 0), 1.0)],
)
def test_the_sign_test_counts_both_ends(counts, chance):
    assert sign_test(*counts) == chance


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    folder = tmp_path_factory.mktemp("models") / "toy"
    write_toy_checkpoint(folder)
    return load(folder)


def letters(num_a: int, num_b: int) -> PairSet:
    """Return the same answers to other prompts, as contrastive sets have them."""
    sea, wind = "the sea", "the wind"
    pairs = [(sea, wind)] * num_a + [(wind, sea)] * num_b
    random.Random(1).shuffle(pairs)
    return PairSet.of(
        [
            {"prompt": f"{word} {other}", "positive": one, "negative": two}
            for (one, two), word, other in zip(
                pairs, WORDS * 3, WORDS[2:] + WORDS + WORDS, strict=False
            )
        ],
        trait_name="calm",
    )


NAMED = r'the last token \(as ".*sea": \d+%\), the first token that differs'


def test_training_warns_where_a_token_does_as_well(toy):
    with pytest.warns(SterWarning, match=NAMED):
        toy.train(letters(18, 2), layers=[0])


def test_optimizing_warns_and_says_it_in_what_it_returns(toy):
    pairs = letters(18, 2)
    with pytest.warns(SterWarning, match=NAMED):
        found: Selection = toy.optimize(pairs, layers=[0], holdout=0.4)
    held = [pair.positive == "the sea" for pair in pairs[-8:]]
    assert features(found.confounds) == {
        "last": sum(held) / 8,
        "difference": sum(held) / 8,
    }
    document: Any = found.document["confounds"]
    assert [each["feature"] for each in document] == ["last", "difference"]
    assert "orders as many" in found._repr_html_()


def test_choosing_by_effect_warns_of_all_pairs(toy):
    with pytest.warns(SterWarning) as warned:  # and of a direction that is no good
        found = optimize_by_effect(toy._session, letters(18, 2), (0, 1))
    assert re.match(NAMED, str(warned[0].message))
    assert features(found.confounds) == {"last": 0.9, "difference": 0.9}
    document: Any = found.document["confounds"]
    assert [each["share"] for each in document] == [0.9, 0.9]
    assert "warning: orders as many pairs: the last token" in draw(draw_effects(found))
    assert "orders as many" in found._repr_html_()


def test_evaluating_warns_of_the_pairs_that_it_measures_on(toy):
    vector = toy.train(letters(10, 10), layers=[0])
    with pytest.warns(SterWarning, match=NAMED):
        found = toy.evaluate(letters(18, 2), vector)
    assert features(found.confounds) == {"last": 0.9, "difference": 0.9}
    assert "orders as many" in found._repr_html_()


def test_balanced_answers_are_silent(toy, recwarn):
    pairs = letters(10, 10)
    vector = toy.train(pairs, layers=[0])
    assert toy.evaluate(pairs, vector).confounds == ()
    assert toy.optimize(pairs, layers=[0], holdout=0.4).document["confounds"] == []
    assert not recwarn


def test_a_templates_tokens_are_nobodys_feature(tmp_path):
    """Here it begins and ends the texts of one side with words of its own."""
    write_toy_checkpoint(tmp_path / "toy")
    (tmp_path / "toy" / "chat_template.jinja").write_text(
        "{% for m in messages %}{% if 'storm' in m.content %}the sea {% endif %}"
        "{{ m.content }}{% if 'storm' in m.content %} .{% endif %}{% endfor %}"
    )
    runtime = load(tmp_path / "toy")
    pairs = [
        (f"{one} storm {two}", f"{one} wind {two}")
        for one, two in zip(WORDS, WORDS[::-1], strict=True)
    ]
    with pytest.warns(SterWarning) as warned:
        runtime.train(PairSet.of(pairs))
    (sentence,) = {str(each.message) for each in warned}
    assert sentence.startswith("the first token that differs (as ")
    assert 'storm": 100%) tells the sides' in sentence
