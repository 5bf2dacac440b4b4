"""Which token of each side training and measuring read, and whose turn it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ster import (
    ContrastPair,
    PairSet,
    SteeringVector,
    StrengthTrial,
    load,
    write_toy_checkpoint,
)
from ster.errors import UsageError
from ster.runtime import Runtime

PAIRS = PairSet.of(
    [
        ("the sea is calm .", "the storm waves crash ."),
        ("the air is still .", "the wind howls ."),
        ("a soft breeze .", "thunder rolls ."),
        ("the boat rests .", "the boat is broken ."),
    ],
    trait_name="calm",
)
# The same last tokens whoever speaks to the model, as many templates have them.
TEMPLATE = (
    "{% for m in messages %}{{ 'the ' if m.role == 'user' else 'a ' }}"
    "{{ m.content }}{{ ' sea' if m.role == 'user' else '' }}{% endfor %}"
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    folder = tmp_path_factory.mktemp("models") / "toy"
    write_toy_checkpoint(folder)
    return load(folder)


@pytest.fixture
def templated(tmp_path: Path) -> Runtime:
    write_toy_checkpoint(tmp_path / "toy")
    (tmp_path / "toy" / "chat_template.jinja").write_text(TEMPLATE)
    return load(tmp_path / "toy")


def mean_difference(runtime: Runtime, **choice):
    rows = runtime.activations(PAIRS.prompts, **choice).array
    found = (rows[0::2] - rows[1::2]).mean(axis=0)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.mark.parametrize("tokens", ["last", "mean", "text", -2])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_training_reads_the_rows_that_activations_reads(templated, tokens, role):
    vector = templated.train(PAIRS, tokens=tokens, role=role)
    expected = mean_difference(templated, tokens=tokens, role=role)
    assert vector.array == pytest.approx(expected, abs=1e-5)


def test_a_vector_says_what_was_read_where_that_is_not_usual(plain):
    usual = plain.train(PAIRS)
    assert not {"tokens", "role"} & set(usual.metadata)
    chosen = plain.train(PAIRS, tokens="mean", role="assistant")
    assert (chosen.metadata["tokens"], chosen.metadata["role"]) == ("mean", "assistant")
    best = plain.optimize(PAIRS, holdout=0.25, tokens="mean").vector
    assert best.metadata["tokens"] == "mean"


ASKED = [
    ContrastPair(prompt="the sea", positive=each.positive, negative=each.negative)
    for each in PAIRS
]
ANSWERS = PairSet.of(ASKED, trait_name="calm")
MIXED = PairSet.of([*ASKED[:1], *PAIRS[1:]], trait_name="calm")


def test_a_vector_says_whether_its_pairs_had_prompts(plain):
    assert "prompts" not in plain.train(PAIRS).metadata
    assert plain.train(ANSWERS).metadata["prompts"] == "all"
    assert plain.train(MIXED).metadata["prompts"] == "some"
    best = plain.optimize(ANSWERS, holdout=0.25).vector
    assert best.metadata["prompts"] == "all"


def test_measuring_without_the_prompts_of_the_fit_warns_and_the_other_way_round(plain):
    asked, alone = plain.train(ANSWERS), plain.train(PAIRS)
    with pytest.warns(
        match="trained on sides that answer a prompt and this run reads sides without"
    ):
        plain.evaluate(PAIRS, asked)
    with pytest.warns(
        match="trained on sides without a prompt and this run reads sides that answer"
    ):
        plain.evaluate(MIXED, alone)
    with pytest.warns(match="trained on sides that answer a prompt and this run"):
        plain.project(PAIRS, asked, layer=3)


def test_measuring_with_prompts_as_in_the_fit_is_silent(plain, recwarn):
    asked, mixed = plain.train(ANSWERS), plain.train(MIXED)
    plain.evaluate(ANSWERS, asked)
    plain.evaluate(MIXED, asked)
    plain.evaluate(ANSWERS, mixed)
    given = SteeringVector.of(asked.array, layers=asked.layers, model=asked.model)
    for pairs in (PAIRS, ANSWERS):  # of which nobody knows what it was fitted to
        plain.evaluate(pairs, given)
    assert not recwarn


@pytest.mark.filterwarnings("ignore:no strength is chosen")
@pytest.mark.parametrize(
    ("pairs", "role", "noted"),
    [
        (PAIRS, "user", True),
        (MIXED, "user", True),
        (ANSWERS, "user", False),
        (PAIRS, "assistant", False),
    ],
)
def test_other_turns_read_than_scored_are_noted(
    templated, monkeypatch, pairs, role, noted
):
    vector = templated.train(pairs, role=role)
    notes: list[str] = []
    monkeypatch.setattr(templated.reporter, "note", notes.append)
    templated.evaluate(pairs, vector)
    sentence = (
        "sides without a prompt are read as a user's turn and scored as an "
        "assistant's; role assistant reads them as they are scored"
    )
    assert sentence not in notes
    templated.evaluate(pairs, vector, StrengthTrial.of([1]))
    assert (sentence in notes) == noted


@pytest.mark.filterwarnings("ignore:no strength is chosen")
def test_without_a_template_there_are_no_turns_to_note(plain, monkeypatch):
    notes: list[str] = []
    monkeypatch.setattr(plain.reporter, "note", notes.append)
    plain.evaluate(PAIRS, plain.train(PAIRS), StrengthTrial.of([1]))
    assert not [each for each in notes if "turn" in each]


def test_evaluating_reads_what_the_vector_was_fitted_to(templated, recwarn):
    vector = templated.train(PAIRS, tokens="mean", role="assistant")
    found = templated.evaluate(PAIRS, vector)
    margins = [each.margin for each in found.layers]
    assert margins == pytest.approx(vector.train_margin, abs=1e-6)
    assert not recwarn


def test_evaluating_other_tokens_warns(templated):
    vector = templated.train(PAIRS)
    sentence = (
        "trained on tokens last of the user's turn and this run reads tokens mean"
    )
    with pytest.warns(match=sentence):
        templated.evaluate(PAIRS, vector, tokens="mean")


@pytest.mark.parametrize("tokens", ["all", "0,1", [0, 2], lambda each: [0]])
def test_tokens_that_are_several_or_cannot_be_recorded_are_refused(plain, tokens):
    with pytest.raises(UsageError) as caught:
        plain.train(PAIRS, tokens=tokens)
    assert caught.value.sentence.endswith(
        "are not one row of each side of a pair; last, text, mean and an index are"
    )


def test_a_range_of_several_tokens_is_refused_and_one_of_one_is_read(plain):
    with pytest.raises(UsageError, match="not one row of each side"):
        plain.train(PAIRS, tokens="0..2")
    assert plain.train(PAIRS, tokens="-1..").array == pytest.approx(
        plain.train(PAIRS).array, abs=1e-6
    )
