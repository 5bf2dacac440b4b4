"""Tables on a terminal: what they hold, how they fit, and what cannot spoil them."""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ster
from ster.cli import run
from ster.cli.tables.answers import draw_answers
from ster.cli.tables.drawing import Column, Columns, draw
from ster.cli.tables.evaluations import draw_evaluation, draw_strengths
from ster.cli.tables.families import draw_families
from ster.cli.tables.projections import draw_projection
from ster.cli.tables.selections import draw_selection, say_doubts
from ster.cli.tables.vectors import draw_vector
from ster.documents.answers import Answer
from ster.vectors.applying import Applying
from ster.vectors.confounds import Confound
from ster.vectors.selection import (
    Baseline,
    Candidate,
    Evaluation,
    LayerScore,
    Selection,
)
from ster.vectors.steering import SteeringVector
from tests import made
from tests.processes import on_screen

EVIL = "\x1b[2J\x9b\u202e\u2028\r\nError: x [bold]y[/bold] :smile:"
PAIRS = {
    "trait_name": "calm",
    "pairs": [{"positive": "the calm sea", "negative": "a loud storm"}] * 4,
}


class Screen(io.TextIOWrapper):
    """A terminal of an encoding, as stdout."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding)

    def isatty(self) -> bool:
        return True

    def shown(self) -> str:
        """What is on it, without colours."""
        text = self.buffer.getvalue().decode(self.encoding)  # type: ignore[attr-defined]
        return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture(autouse=True)
def eighty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of eighty columns."""
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ster.write_toy_checkpoint("toy")
    Path("pairs.json").write_text(json.dumps(PAIRS))
    return tmp_path


def vector(**changes: Any) -> SteeringVector:
    words: dict[str, Any] = {
        "layers": (1, 2),
        "array": np.ones((2, 4), np.float32),
        "model": "toy",
        "trait_name": "calm",
        "method": "caa",
    }
    return SteeringVector(**words | changes)


def candidate(layer: int, accuracy: float, **changes: Any) -> Candidate:
    words: dict[str, Any] = {
        "layer": layer,
        "method": "caa",
        "accuracy": accuracy,
        "margin": float(layer),
        "effect_size": None if layer == 0 else 1.5,
        "interval": (accuracy - 0.05, accuracy + 0.05),
        "random": Baseline(mean=0.5, percentile_95=0.6),
    }
    return Candidate(**words | changes)


def choice(*candidates: Candidate, num_holdout: int = 20, best: float = 0.7):
    return Selection(
        vector=vector(),
        candidates=candidates,
        fraction=0.2,
        num_fit=80,
        num_holdout=num_holdout,
        random_best=Baseline(mean=0.55, percentile_95=best),
    )


def drawn(parts: Any) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", draw(parts))


def test_the_chosen_candidate_is_marked_and_stands_first():
    found = choice(
        candidate(0, 0.6), candidate(1, 0.9, selected=True), candidate(2, 0.7)
    )
    lines = drawn(draw_selection(found)).splitlines()
    rows = [line.split() for line in lines if re.search(r" caa ", line)]
    assert [row[:4] for row in rows] == [
        ["*", "1", "caa", "0.900"],
        ["2", "caa", "0.700", "0.65"],
        ["0", "caa", "0.600", "0.55"],
    ]
    assert rows[0][4:] == ["0.85", "to", "0.95", "0.600", "1.50", "1"]
    assert "-" in rows[2]
    text = " ".join(" ".join(lines).split())
    assert "* chosen over 3 candidates on 20 held-out pairs" in text
    assert "accuracy 0.550 on average, one in twenty above 0.700" in text
    assert "warning" not in text
    assert "same accuracy" not in text


def test_ties_and_what_is_not_shown_are_counted():
    others = [candidate(layer, 0.9) for layer in range(1, 15)]
    best = candidate(20, 0.9, selected=True)
    text = drawn(draw_selection(choice(*others, best)))
    assert "14 others have the same accuracy" in text
    assert "and 5 more candidates, which --json prints" in text
    one = drawn(draw_selection(choice(candidate(1, 0.9), best)))
    assert "1 other has the same accuracy" in one


@pytest.mark.parametrize(
    ("best", "others", "doubts"),
    [
        (0.70, [0.6, 0.6, 0.9], 0),
        (0.85, [0.6, 0.6, 0.9], 1),
        (0.70, [0.6, 0.85, 0.9], 1),
        (0.90, [0.85, 0.85, 0.9], 2),
    ],
)
def test_too_few_pairs_are_warned_of(best: float, others: list[float], doubts: int):
    rest = [candidate(number, each) for number, each in enumerate(others)]
    chosen = candidate(9, 0.9, interval=(0.8, 0.95), selected=True)
    found = list(say_doubts(choice(*rest, chosen, best=best)))
    assert len(found) == doubts
    assert all("20 held-out pairs are too few" in each for each in found)


def test_a_pair_alone_is_too_few():
    chosen = candidate(1, 1.0, interval=(0.2, 1.0), selected=True)
    text = drawn(draw_selection(choice(chosen, num_holdout=1, best=1.0)))
    assert "warning: 1 held-out pair is too few to tell" in text


def test_a_trivial_feature_that_orders_as_many_pairs_is_a_warning():
    letter = Confound(feature="difference", share=0.9, favours=EVIL)
    length = Confound(feature="length", share=1.0, favours="longer")
    layer = LayerScore(
        layer=1,
        accuracy=0.9,
        margin=1.0,
        interval=(0.85, 0.95),
        random=Baseline(mean=0.5, percentile_95=0.6),
        residual_norm=2.0,
    )
    evaluation = Evaluation(
        vector=vector(), chat_template="off", num_pairs=20, layers=(layer,)
    )
    selection = choice(candidate(1, 0.9, selected=True))
    for parts, plain in (
        (draw_evaluation(replace(evaluation, confounds=(length, letter))), evaluation),
        (draw_selection(replace(selection, confounds=(length, letter))), selection),
    ):
        text = " ".join(drawn(parts).split())
        assert (
            "warning: orders as many pairs: length (the longer side is positive: 100%),"
            " the first token that differs (as "
        ) in text
        assert not re.search("[\x1b\x9b\u202e\u2028]", text)
        assert plain.document["confounds"] == []
    assert "as many pairs" not in drawn(draw_evaluation(evaluation))
    assert "as many pairs" not in drawn(draw_selection(selection))


def test_a_row_of_strengths_is_marked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "100")
    found = made.strength_choice()
    text = drawn(draw_strengths(found))
    # Strength, effect, damage, random, how many as large, ordered, mean shift, slope.
    row = r"^\* +4 +\+1.00 ± 0.25 +\+0.125 +0.01 +< 0.001 +0.750 +\+1.5000 +-"
    assert re.search(row, text, re.M)
    assert re.search(r"^ +-2 +-0.50 ± 0.25 +\+0.125 +0.01 +1.000 +0.250", text, re.M)
    assert "8 pairs scored, 1 too long" in text
    assert "0.1n is 4 on average over the layers" in text
    assert "* chosen; " in text


def test_a_narrow_table_of_strengths_keeps_effect_and_damage(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("COLUMNS", "40")
    text = drawn(draw_strengths(made.strength_choice()))
    assert re.search(r"^\* +4 +\+1.00 ± 0.25 +\+0.125 *$", text, re.M)


def test_a_table_without_a_chosen_strength_says_so():
    """Why is a warning, on stderr."""
    text = drawn(draw_strengths(made.strength_choice(chosen=False)))
    assert "none chosen; 8 pairs scored" in text
    assert "*" not in text


def test_tables_and_cards_say_how_a_vector_was_applied():
    applying = Applying.of(how="at-least", where="generated", keep_norm=True)
    said = "at-least, where generated, norm kept"
    measured = made.evaluation(measured=True)
    assert measured.strength is not None
    strength = replace(measured.strength, applying=applying)
    evaluation = replace(measured, strength=strength)
    projection = made.projection(applying=applying)
    texts = [
        drawn(draw_strengths(strength)),
        drawn(draw_projection(projection)),
        *(each._repr_html_() for each in (strength, evaluation, projection)),
    ]
    assert [said in " ".join(text.split()) for text in texts] == [True] * 5
    for plain in (made.strength_choice(), made.evaluation(), measured):
        assert "applied" not in plain._repr_html_()
    assert "applied" not in drawn(draw_strengths(made.strength_choice()))


def test_long_words_give_way_to_long_numbers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "50")
    number = "-0.123456789 to +0.123456789"
    columns = [
        Column(name="words", cells=["long " * 20], is_text=True),
        Column(name="number", cells=[number]),
    ]
    assert number in drawn([Columns(columns=columns)])


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_tables_fit_the_terminal(monkeypatch: Any, width: int):
    monkeypatch.setenv("COLUMNS", str(width))
    best = candidate(9, 0.9, selected=True)
    long = Answer(
        prompt="p", strength=1.5, text="word " * 80, token_ids=(1,), ended="stop"
    )
    listed = [
        {
            "family": "f" * 30,
            "models": "m " * 40,
            "through": "ster",
            "checked": "c " * 50,
            "largest_error": 1e-6,
        }
    ]
    for parts in (
        draw_selection(choice(candidate(1, 0.5), best)),
        draw_vector(vector(trait_name="t" * 200, model="m" * 100)),
        draw_answers([long]),
        draw_families(listed),
    ):
        text = drawn(parts)
        assert max(map(len, text.splitlines())) <= min(width, 100)
        assert "…" not in text
    whole = drawn(draw_selection(choice(candidate(1, 0.5), best)))
    assert "0.900" in whole
    said, _, left_out = whole.partition("no room for ")
    assert ("effect size" in said) == (width >= 80)
    assert bool(left_out) == (width < 80)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_an_encoding_without_lines_gets_ascii(monkeypatch: Any, encoding: str):
    monkeypatch.setattr(sys, "stdout", Screen(encoding))
    monkeypatch.setenv("COLUMNS", "80")
    text = drawn(draw_vector(vector()))
    assert ("─" in text) == (encoding == "utf-8")
    if encoding != "utf-8":
        text.encode(encoding)


def test_texts_out_of_files_cannot_steer_the_terminal():
    words = {"trait_name": EVIL, "method": EVIL, "model": EVIL}
    odd = vector(**words, precision=EVIL, chat_template=EVIL, metadata={EVIL: EVIL})
    best = candidate(9, 0.9, selected=True)
    answer = Answer(prompt="p", strength=1.0, text=EVIL, token_ids=(1,), ended="stop")
    for parts in (draw_vector(odd), draw_answers([answer])):
        text = draw(parts)
        shown = re.sub(r"\x1b\[[0-9;]*m", "", text)
        assert not set(shown) & set("\x1b\x9b\u202e\u2028\r")
        assert not re.search(r"^Error: x", shown, re.M)
        assert "[bold]y[/bold]" in shown.replace("\n", "").replace("  ", "")
        assert ":smile:" in shown.replace("\n", "")
    assert best.selected


LINES = {
    "train": ["vector", "train", "-m", "toy", "-p", "pairs.json", "-o", "v.json"],
    "optimize": [
        *("vector", "optimize", "-m", "toy", "-p", "pairs.json", "-o", "w.json"),
        *("--holdout", "0.5"),
    ],
    "evaluate": [
        *("vector", "evaluate", "-m", "toy", "-p", "pairs.json", "-v", "v.json"),
        "--strengths=-1,1",
    ],
    "inspect": ["vector", "inspect", "v.json"],
    "models": ["models"],
    "generate": [
        *("generate", "-m", "toy", "-p", "the sea", "-v", "v.json"),
        *("--strengths=0,1", "--max-new-tokens", "3"),
    ],
}
HEADINGS = {
    "train": "layer   accuracy   margin   length",
    "optimize": "layer   method",
    "evaluate": "effect   damage   random",
    "inspect": "layer   accuracy   margin   length",
    "models": "family",
    "generate": "strength   answer",
}


@pytest.mark.parametrize("command", LINES)
def test_a_terminal_gets_a_table_and_the_rest_what_they_asked_for(
    place: Path, monkeypatch: Any, capfd: Any, command: str
):
    monkeypatch.setenv("COLUMNS", "80")
    run(LINES["train"])
    capfd.readouterr()
    assert run(LINES[command]) == 0
    piped = capfd.readouterr().out
    for words in ([], ["--json"], ["--text"]):
        stdout = Screen("utf-8")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stdout)
            assert run([*LINES[command], *words]) == 0
        if not words:
            assert HEADINGS[command] in stdout.shown()
        elif words == ["--json"] and command != "generate":  # whose pipe gets Markdown
            assert stdout.shown() == piped
        elif words == ["--json"]:
            assert json.loads(stdout.shown())
        else:
            assert ": " in stdout.shown().splitlines()[0]


def test_a_real_terminal_shows_a_table(place: Path, monkeypatch: Any):
    monkeypatch.setenv("TERM", "xterm-256color")
    code, shown = on_screen([sys.executable, "-m", "ster", *LINES["train"]])
    assert code == 0
    assert b"train_margin" not in shown
    assert b"accuracy" in shown
    assert Path("v.json").exists()


@pytest.mark.parametrize("columns", ["40", "80", "120"])
def test_help_at_a_terminal_is_boxed_where_there_is_room(
    monkeypatch: Any, columns: str
):
    screen = Screen("utf-8")
    monkeypatch.setattr(sys, "stdout", screen)  # in the test, or pytest undoes it
    monkeypatch.setenv("COLUMNS", columns)
    assert run(["vector", "train", "--help"]) == 0
    lines = screen.shown().splitlines()
    boxed = [line for line in lines if line.startswith("│")]
    assert bool(boxed) == (columns != "40")
    assert {len(line) for line in boxed} <= {min(int(columns), 100)}
    assert any("--pairs <FILE>" in line for line in lines)


def test_help_at_a_terminal_without_lines_is_plain(monkeypatch: Any):
    stdout = Screen("ascii")
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--help"]) == 0
    assert stdout.shown().isascii()
    assert "extract" in stdout.shown()
