"""Which token of each side training and measuring read, and whose turn it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ster import PairSet, load, write_toy_checkpoint
from ster.errors import PromptError, UsageError
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
    assert caught.value.sentence.endswith("are not one row of each side of a pair")


def test_a_range_of_several_tokens_is_refused_and_one_of_one_is_read(plain):
    with pytest.raises(PromptError, match="not one row of each side"):
        plain.train(PAIRS, tokens="0..2")
    assert plain.train(PAIRS, tokens="-1..").array == pytest.approx(
        plain.train(PAIRS).array, abs=1e-6
    )
