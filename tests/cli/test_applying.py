"""``--how``, ``--where`` and the flags beside them, on every command that steers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ster
from ster import Intervention
from ster.cli import run
from tests.cli.test_vector import words
from tests.cli.user import User

PAIRS = [
    {"prompt": "describe the lake .", "positive": "the sea is calm", "negative": "wind"}
]
WAYS: dict[tuple[str, ...], dict[str, Any]] = {
    ("--how=replace",): {"how": "replace"},
    ("--how", "remove", "--at-layers=all"): {"how": "remove", "layers": "all"},
    ("--how=at-least", "--keep-norm"): {"how": "at-least", "keep_norm": True},
    ("--how=add-below", "--below", "-0.1n"): {"how": "add-below", "below": "-0.1n"},
    ("--where", "generated"): {"where": "generated"},
    ("--where", "-2..", "--how=clamp"): {"where": "-2..", "how": "clamp"},
}


@pytest.fixture
def say(user: User, capsys: pytest.CaptureFixture[str]):
    """Run a line in a folder with the toy checkpoint, pairs and a vector."""
    user.write("pairs.json", json.dumps({"pairs": PAIRS}))
    assert run(words("train", "--layers", "2", output="v.json")) == 0
    capsys.readouterr()

    def say(*line: str) -> tuple[int, str, str]:
        code = run([*line])
        return code, *capsys.readouterr()

    return say


GENERATE = ("generate", "--model", "toy", "--prompt", "the sea", "--max-new-tokens=6")
STEERED = ("--vector", "v.json:2")


@pytest.mark.parametrize("line", WAYS)
def test_a_line_does_what_its_intervention_does(say, line):
    vector, runtime = ster.SteeringVector.load("v.json"), ster.load("toy")
    expected = [
        runtime.generate(
            "the sea",
            steer=Intervention(vector, 2.0 * times, **WAYS[line]),
            max_new_tokens=6,
        )
        for times in (3.0, 40.0)
    ]
    code, out, _ = say(*GENERATE, *STEERED, "--strength=3", *line)
    assert (code, out) == (0, expected[0])
    _, out, _ = say(*GENERATE, *STEERED, "--strengths=3,40", *line)
    rows = [
        f"| {strength} | {' '.join(answer.split())} |"
        for strength, answer in zip(("3", "40"), expected, strict=True)
    ]
    assert out.splitlines()[2:] == rows


@pytest.mark.filterwarnings("ignore:no strength is chosen")
def test_a_trial_measures_what_its_line_says(say):
    line = words("evaluate", "--strengths=-3,3", "--how=replace", "--where=generated")
    code, out, _ = say(*line)
    pairs = ster.PairSet.load("pairs.json")
    steer = Intervention(
        ster.SteeringVector.load("v.json"), how="replace", where="generated"
    )
    trial = ster.StrengthTrial.of([-3, 3])
    runtime = ster.load("toy")
    expected = runtime.evaluate(pairs, steer, trial).strength
    plain = runtime.evaluate(pairs, steer.vector, trial).strength
    assert expected is not None
    assert plain is not None
    assert (code, json.loads(out)["strength"]) == (0, expected.document)
    assert expected.candidates != plain.candidates
    assert expected.document["intervention"] == {
        "how": "replace",
        "where": "generated",
        "below": None,
        "keep_norm": False,
        "layers": None,
    }
    assert "intervention" not in plain.document


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (("--how=project", *STEERED), 'unknown how "project"; expected add, remove'),
        (("--where=most", *STEERED), 'unknown tokens "most"; expected all, prompt'),
        (("--where=4..2", *STEERED), 'the range "4..2" is empty'),
        (("--below=1", *STEERED), "below is for add-below, not for add"),
        (("--how=add-below", *STEERED), "add-below needs a threshold"),
        (("--how=add-below", "--below=x", *STEERED), 'invalid strength "x"'),
        (("--how=clamp", "--strengths=1,-1", *STEERED), "c cannot be -2"),
        (("--how=remove", "--strength=1n", "--vector=v.json"), "is a share"),
        (("--how=remove",), "--how needs --vector"),
        (("--keep-norm",), "--keep-norm needs --vector"),
        (("--at-layers=1",), "--at-layers needs --vector"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(say, line, sentence):
    # Before anything is read: neither the model nor the vector is there.
    for path in (Path("v.json"), Path("toy/config.json")):
        path.unlink()
    code, out, err = say(*GENERATE, *line)
    assert (code, out) == (2, "")
    assert sentence in err


def test_documents_say_how_vectors_were_applied(say, user: User):
    user.write("prompts.txt", "the sea\ncalm\n")
    files = ("--prompts=prompts.txt", "--output=o.json", "--max-new-tokens=2")
    answers = ("generate", "--model=toy", *files, *STEERED, "--strengths=1,2")
    given = {"where": "all", "below": None, "keep_norm": False, "layers": None}
    for line, words_of in WAYS.items():
        code, _, err = say(*answers, *line)
        assert code == 0, err
        found = user.document()["answers"]
        assert [each["interventions"] for each in found] == [
            [{"how": "add"} | given | words_of]
        ] * 4
    say(*answers)
    assert list(user.document()["answers"][0]) == [
        *("prompt", "strength", "text", "tokens", "ended")
    ]


@pytest.mark.parametrize("line", WAYS)
def test_a_projection_moves_what_its_line_says(say, user: User, line):
    user.write("pairs.json", json.dumps({"pairs": PAIRS * 2}))
    project = (*words("project", "--layer=3", "--components=1", output=None), *line)
    code, out, err = say(*project, "--vector=v.json", "--strength=2.5")
    assert code == 0, err
    pairs = ster.PairSet.load("pairs.json")
    steer = Intervention(ster.SteeringVector.load("v.json"), 2.5, **WAYS[line])
    found = ster.load("toy").project(pairs, steer, layer=3, components=1)
    assert json.loads(out) == found.document
    assert found.document["intervention"] == steer.applying.document
    plain = say(*project[: -len(line)], "--vector=v.json", "--strength=2.5")[1]
    assert json.loads(plain)["points"] != found.document["points"]


def test_a_projection_refuses_a_strength_that_is_none(say):
    for path in (Path("v.json"), Path("toy/config.json")):
        path.unlink()
    line = words("project", "--layer=3", "--components=1", output=None)
    code, out, err = say(*line, "--vector=v.json", "--strength=-1", "--how=clamp")
    assert (code, out) == (2, "")
    assert "c cannot be -1" in err


def test_flags_of_a_trial_need_one(say):
    code, out, err = say(*words("evaluate", "--how=replace"))
    assert (code, out) == (2, "")
    assert "--how needs --strengths" in err


def test_layers_that_are_not_there_are_refused(say):
    code, _, err = say(*GENERATE, *STEERED, "--at-layers=7")
    assert (code, err.splitlines()[-1]) == (
        1,
        "Error: layer 7 is outside the model's 0..3 range",
    )
