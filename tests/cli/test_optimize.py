"""``ster vector optimize`` by effect, as a person runs it on the toy checkpoint."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace

import pytest

from ster.cli import run
from ster.cli.tables.drawing import draw
from ster.cli.tables.effects import draw_effects
from tests.cli.user import User
from tests.processes import finished, on_screen
from tests.test_choosing_by_effect import PAIRS, chosen

LINE = ["vector", "optimize", "-m", "toy", "-p", "pairs.json", "-o", "calm.json"]


@pytest.fixture
def folder(user: User, capsys):
    PAIRS.save(user.folder / "pairs.json")
    return user.folder


def test_a_direction_no_better_than_random_is_shown_and_not_written(folder, capsys):
    (folder / "calm.json").write_text("mine")
    assert run([*LINE, "--layers", "1,2"]) == 1
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert report["selection"]["by"] == "effect"
    assert report["selection"]["strength"] == "0.1n"
    assert report["selection"]["doubts"]
    assert f"Error: {report['selection']['doubts'][0]}\n" in shown.err
    assert "--write-anyway" in shown.err
    assert "wrote" not in shown.err
    assert (folder / "calm.json").read_text() == "mine"


def test_it_is_written_where_a_person_insists(folder, capsys):
    assert run([*LINE, "--layers", "1,2", "--write-anyway"]) == 0
    shown = capsys.readouterr()
    doubts = json.loads(shown.out)["selection"]["doubts"]
    for doubt in doubts:
        assert f"warning: {doubt}\n" in shown.err
    artifact = json.loads((folder / "calm.json").read_text())
    assert "by effect at 0.1n" in artifact["metadata"]["selection"]


@pytest.mark.parametrize(
    ("flags", "code", "sentence"),
    [
        (["--by", "luck"], 2, 'unknown rule "luck"'),
        (["--strength", "2"], 2, "a share of each layer's norm, such as 0.1n, not 2"),
        (["--strength", "x"], 2, "invalid strength"),
        (["--strength", "nann"], 2, "strength must be finite, not nan"),
        (["--by", "effect", "--holdout", "0.2"], 2, "holdout belongs to choosing by"),
        (["--holdout", "0.2", "--seed", "1"], 2, "seed belongs to choosing by effect"),
        (["--by", "accuracy", "--write-anyway"], 2, "write_anyway belongs to choosing"),
        (["--holdout", "0"], 1, "must be above zero and below one"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    folder, capsys, flags, code, sentence
):
    assert run([*LINE, *flags]) == code
    shown = capsys.readouterr()
    assert shown.err.startswith("Error: ")
    assert sentence in shown.err
    assert not (folder / "calm.json").exists()


def test_by_accuracy_holds_a_fifth_out_unless_told(folder, capsys):
    assert run([*LINE, "--by", "accuracy"]) == 0
    report = json.loads(capsys.readouterr().out)["selection"]
    assert report["holdout"] == {
        "fit_pairs": 6,
        "fraction": 0.2,
        "holdout_pairs": 2,
    }


def test_a_table_has_effects_with_their_errors(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = draw(draw_effects(chosen([1.0, 1.2, 0.8, 1.0], luck=1.5)))
    assert "+1.000 ± 0.082" in text
    assert "0.100" in text  # the damage


def test_a_candidate_that_was_not_steered_with_has_a_dash_that_is_explained(
    monkeypatch,
):
    monkeypatch.setenv("COLUMNS", "100")
    found = chosen([1.0, 1.2, 0.8, 1.0])
    assert "not steered with" not in draw(draw_effects(found))
    other = replace(found.best, effect=None, damage=None, selected=False, layer=3)
    both = replace(found, candidates=(*found.candidates, other))
    text = draw(draw_effects(both))
    assert re.search(r"^ +3 +caa +- +- +- ", text, re.M)
    assert "-: not steered with" in text


def test_what_a_narrow_table_leaves_out_is_named(monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    found = chosen([1.0, 1.2, 0.8, 1.0])
    text = draw(draw_effects(found))
    assert "no room for fold accuracy and random, which --json prints" in text
    monkeypatch.setenv("COLUMNS", "100")
    assert "no room" not in draw(draw_effects(found))


@pytest.mark.parametrize("width", [20, 25, 30, 41, 42])
def test_no_terminal_is_so_narrow_that_a_number_is_broken(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    found = chosen([1.0, 1.2, 0.8, 1.0])
    best = replace(found.best, method="pca-uncentred")
    shown = draw(draw_effects(replace(found, candidates=(best,))))
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert {"+1.000", "±", "0.082"} <= {*text.split()}
    assert re.search(r"pca-uncentred\b", text)
    assert max(map(len, text.splitlines())) <= width


def test_a_refusal_outlives_whoever_reads(folder, monkeypatch):
    monkeypatch.chdir(folder)
    reading, writing = os.pipe()
    os.close(reading)
    line = [sys.executable, "-m", "ster", *LINE, "--layers", "1,2"]
    ended = finished(line, stdout=writing)
    os.close(writing)
    assert ended.returncode == 1
    assert b"Error: " in ended.stderr
    assert not (folder / "calm.json").exists()


@pytest.mark.parametrize("flags", [[], ["--write-anyway"]])
def test_why_a_direction_is_doubtful_is_said_once(folder, monkeypatch, flags):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "300")
    line = [*LINE, "--layers", "1,2", *flags]
    code, shown = on_screen([sys.executable, "-m", "ster", *line])
    assert code == (0 if flags else 1)
    assert b"* best by the lower bound" in shown
    assert shown.count(b"steers no better than a random direction") == 1
