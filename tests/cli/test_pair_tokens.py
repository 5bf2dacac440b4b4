"""``--tokens`` and ``--role`` on the commands that fit and measure vectors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ster
from ster.cli import run
from tests.cli.user import User

# The same last token whoever speaks, and another first one.
TEMPLATE = (
    "{% for m in messages %}{{ 'the ' if m.role == 'user' else 'a ' }}"
    "{{ m.content }} sea{% endfor %}"
)
SIDES = [
    ("the sea is calm .", "the storm waves crash ."),
    ("the air is still .", "the wind howls ."),
    ("a soft breeze .", "thunder rolls ."),
    ("the boat rests .", "the boat is broken ."),
]
PAIRS = ster.PairSet.of(SIDES, trait_name="calm")
CHOSEN = ["--tokens", "mean", "--role", "assistant"]


@pytest.fixture
def folder(user: User) -> Path:
    """A folder with the toy checkpoint under a template, and pairs."""
    user.write("toy/chat_template.jinja", TEMPLATE)
    PAIRS.save("pairs.json")
    return user.folder


def vector(command: str, *words: str, model: str = "toy") -> int:
    own = ["--vector", "v.json"] if command == "evaluate" else ["--output", "v.json"]
    return run(
        ["vector", command, "--model", model, "--pairs", "pairs.json", *own, *words]
    )


def test_train_reads_what_it_is_told_and_records_it(folder, capsys):
    assert vector("train", *CHOSEN) == 0
    summary = json.loads(capsys.readouterr().out)
    metadata = summary["artifact"]["metadata"]
    assert (metadata["tokens"], metadata["role"]) == ("mean", "assistant")
    written = ster.SteeringVector.load("v.json")
    assert written.metadata == metadata
    expected = ster.load("toy").train(PAIRS, tokens="mean", role="assistant")
    assert written.array == pytest.approx(expected.array, abs=1e-6)


def test_optimize_reads_what_it_is_told_and_records_it(folder, capsys):
    assert vector("optimize", "--holdout", "0.5", *CHOSEN) == 0
    printed = json.loads(capsys.readouterr().out)
    written = ster.SteeringVector.load("v.json")
    assert (written.metadata["tokens"], written.metadata["role"]) == (
        "mean",
        "assistant",
    )
    runtime = ster.load("toy")
    told = runtime.optimize(PAIRS, holdout=0.5, tokens="mean", role="assistant")
    usual = runtime.optimize(PAIRS, holdout=0.5).document["candidates"]
    assert printed["selection"]["candidates"] == told.document["candidates"] != usual


def test_evaluate_reads_as_the_vector_was_trained(folder, capsys):
    assert vector("train", *CHOSEN) == 0
    capsys.readouterr()
    assert vector("evaluate") == 0
    out, err = capsys.readouterr()
    margins = [layer["margin"] for layer in json.loads(out)["layers"]]
    trained = ster.SteeringVector.load("v.json").train_margin
    assert margins == pytest.approx(trained, abs=1e-6)
    assert "warning" not in err


def test_evaluate_warns_where_it_is_told_to_read_otherwise(folder, capsys):
    assert vector("train", *CHOSEN) == 0
    capsys.readouterr()
    assert vector("evaluate", "--tokens", "last", "--role", "user") == 0
    out, err = capsys.readouterr()
    margins = [layer["margin"] for layer in json.loads(out)["layers"]]
    trained = ster.SteeringVector.load("v.json").train_margin
    assert margins != pytest.approx(trained, rel=1e-2)
    assert (
        "warning: this direction was trained on tokens mean of the assistant's turn "
        "and this run reads tokens last of the user's turn, so the numbers below "
        "describe tokens it was not trained on\n"
    ) in err


@pytest.mark.parametrize("command", ["train", "optimize", "evaluate"])
@pytest.mark.parametrize("tokens", ["all", "0..2", "-3..", "0,1"])
def test_several_rows_of_a_side_are_refused_before_anything_is_looked_for(
    folder, capsys, command, tokens
):
    before = sorted(folder.rglob("*"))
    assert vector(command, "--tokens", tokens, model="nowhere") == 2
    assert capsys.readouterr() == (
        "",
        f"Error: tokens {tokens} are not one row of each side of a pair; last, text, "
        "mean and an index are\n",
    )
    assert sorted(folder.rglob("*")) == before


def test_several_rows_of_a_side_are_no_curve(folder, capsys):
    model = ["--model", "nowhere", "--pairs", "pairs.json", "--method", "caa"]
    words = ["--holdout", "0.25", "--sizes", "2", "--tokens", "all"]
    assert run(["vector", "curve", *model, *words]) == 2
    assert capsys.readouterr().err.startswith("Error: tokens all are not one row of ")


@pytest.mark.parametrize("command", ["train", "optimize", "evaluate"])
def test_a_role_that_there_is_not_is_refused_before_anything_is_looked_for(
    folder, capsys, command
):
    assert vector(command, "--role", "system", model="nowhere") == 2
    assert capsys.readouterr().err.startswith('Error: unknown role "system"; expected')


def test_a_letter_that_does_as_well_is_warned_of_and_in_the_report(folder, capsys):
    pairs = [("the sea", "the wind")] * 18 + [("the wind", "the sea")] * 2
    ster.PairSet.of(pairs).save("pairs.json")
    assert vector("train", "--layers", "0") == 0
    named = "the first token that differs (as "
    err = capsys.readouterr().err
    assert err.splitlines()[-1].startswith("warning: ")
    assert named in err
    assert vector("evaluate") == 0
    out, err = capsys.readouterr()
    assert named in err
    features = {each["feature"]: each for each in json.loads(out)["confounds"]}
    assert {*features} == {"last", "difference"}
    assert features["last"]["share"] == 0.9
    assert features["last"]["favours"].strip() == "sea"


def test_choosing_by_effect_warns_of_a_letter_too(folder, capsys):
    pairs = [("the sea", "the wind")] * 18 + [("the wind", "the sea")] * 2
    ster.PairSet.of(pairs).save("pairs.json")
    assert vector("optimize", "--layers", "0", "--write-anyway") == 0
    out, err = capsys.readouterr()
    selection = json.loads(out)["selection"]
    assert selection["by"] == "effect"
    assert {each["feature"] for each in selection["confounds"]} == {
        "last",
        "difference",
    }
    assert "the first token that differs (as " in err
