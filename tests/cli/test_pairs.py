"""``ster pairs``: made, inspected, and refused in a sentence."""

from __future__ import annotations

import json
import sys

import pytest

from ster import PairSet
from ster.cli import run
from tests.cli.user import User
from tests.processes import finished, on_screen

STER = [sys.executable, "-m", "ster"]
MAKE = ["pairs", "make", "--prompts", "p.txt"]
GLAD = ["--positive", "Be glad.", "--negative", "Be sad."]


@pytest.fixture(autouse=True)
def prompts(user: User) -> None:
    user.write("p.txt", "the sea\nthunder rolls\n")
    user.write("moods.csv", "text,mood\nfine,1\nbad,0\nawful,0\n")


def test_pairs_are_made_and_inspected(user: User, capsys):
    assert run([*MAKE, *GLAD, "--output", "glad.json"]) == 0
    assert capsys.readouterr().out == "glad.json\n"
    pairs = PairSet.load("glad.json")
    assert pairs.trait_name == "glad"
    assert pairs[0].positive == "Be glad. the sea"
    assert run(["pairs", "inspect", "glad.json"]) == 0
    words = json.loads(capsys.readouterr().out)
    assert (words["pairs"], words["lengths"]["unit"]) == (2, "characters")
    assert run(["pairs", "inspect", "glad.json", "--model", "toy"]) == 0
    assert json.loads(capsys.readouterr().out)["unit"] == "tokens"


def test_system_pairs_go_to_standard_output(user: User):
    words = ["--as", "system", "--trait", "x", "--output", "-"]
    ran = finished([*STER, *MAKE, *GLAD, *words])
    assert (ran.returncode, ran.stderr) == (0, b"")
    document = json.loads(ran.stdout)
    assert document["trait_name"] == "x"
    assert document["pairs"][1]["negative_system"] == "Be sad."


def test_warnings_and_what_was_left_over_go_to_stderr(user: User, capsys):
    lines = "".join(f"word {n} and more,word {n}\n" for n in range(10))
    user.write("long.csv", f"positive,negative\n{lines}")
    assert run(["pairs", "inspect", "long.csv"]) == 0
    assert capsys.readouterr().err.startswith(
        "warning: the sides differ systematically in length"
    )
    labelled = ["moods.csv", "--label", "mood", "--positive", "1"]
    assert run(["pairs", "inspect", *labelled, "--text"]) == 0
    out, err = capsys.readouterr()
    assert "pairs: 1\n" in out
    assert err == '1 pair by the label "mood"; 1 prompt of "0" was left over\n'


def test_a_terminal_gets_a_table(user: User):
    run([*MAKE, *GLAD, "--output", "glad.json"])
    code, shown = on_screen([*STER, "pairs", "inspect", "glad.json"])
    assert code == 0
    assert b"glad: 2 pairs" in shown
    assert b"first differing word: middle 2" in shown


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ([*MAKE, *GLAD, "--as", "x", "--output", "o.json"], 2,
         'unknown way of a persona "x"; expected prefix or system'),
        ([*MAKE, *GLAD, "--negative", "b", "--positive", "c", "--positive", "d",
          "--output", "o.json"], 2,
         "3 positive instructions and 2 negative ones do not pair"),
        ([*MAKE, *GLAD, "--output", "o.txt"], 1, "failed to write o.txt"),
        ([*MAKE, *GLAD, "--output", "p.txt"], 1, "failed to write p.txt"),
        ([*MAKE, *GLAD, "--trait", "x", "--output", "o.csv"], 2,
         "--trait needs a .json output: .csv has no place for a name"),
        ([*MAKE, *GLAD, "--trait", "a\udcff", "--output", "o.json"], 1,
         "the bytes of --trait are not UTF-8"),
        (["pairs", "inspect", "moods.csv", "--revision", "x"], 2,
         "--revision needs --model"),
        (["pairs", "inspect", "none.csv"], 1, "failed to read pair set none.csv"),
        (["pairs", "inspect", "moods.csv"], 1, "invalid pair set CSV in moods.csv"),
        (["pairs", "inspect", "moods.csv", "--label", "mood"], 2,
         "--label needs --positive"),
        (["pairs", "inspect", "moods.csv", "--positive", "1"], 2,
         "--positive needs --label"),
        (["pairs", "inspect", "moods.csv", "--label", "mood", "--positive", "2"], 1,
         'no prompt has "2" as its label "mood"'),
        (["pairs", "inspect", "moods.csv", "--label", "x", "--positive", "2"], 1,
         'the prompts have no label "x"'),
    ],
)  # fmt: skip
def test_a_refusal_is_one_sentence(user: User, capsys, words, code, sentence):
    assert run(words) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == f"Error: {sentence}"
    assert not [*user.folder.glob("o.*")]


@pytest.mark.parametrize("command", ["train", "optimize", "evaluate"])
def test_vectors_are_fitted_to_and_measured_on_labelled_prompts(
    user: User, capsys, command
):
    user.write(
        "moods.csv",
        "text,mood\nthe sea is calm .,1\nthunder rolls,0\na breeze .,1\na storm,0\n"
        "the lake,1\n",
    )
    PairSet.of([("the sea is calm .", "a storm")]).save("one.json")
    model = ["--model", "toy"]
    assert run(["vector", "train", *model, "--pairs", "one.json",
                "--output", "v.json"]) == 0  # fmt: skip
    capsys.readouterr()
    place = ["--vector", "v.json"] if command == "evaluate" else ["--output", "w.json"]
    split = ["--holdout", "0.5"] if command == "optimize" else []
    line = ["vector", command, *model, "--pairs", "moods.csv", *place, *split]
    assert run([*line, "--label", "mood", "--positive", "1"]) == 0
    out, err = capsys.readouterr()
    assert '2 pairs by the label "mood"; 1 prompt of "1" was left over\n' in err
    words = json.loads(out)
    trait = words["trait_name" if command == "evaluate" else "artifact"]
    assert (trait if command == "evaluate" else trait["trait_name"]) in ("1", "one")
    assert run([*line, "--label", "mood"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == "Error: --label needs --positive"


def test_pairs_come_through_a_pipe(user: User):
    user.write("p.csv", "positive,negative\nthe sea is calm .,thunder rolls\n")
    with open("p.csv", "rb") as pipe:
        line = [*STER, "vector", "train", "--model", "toy", "--pairs", "-"]
        ran = finished([*line, "--output", "v.json"], stdin=pipe)
    assert ran.returncode == 0, ran.stderr
    assert json.loads((user.folder / "v.json").read_bytes())["vectors"]
