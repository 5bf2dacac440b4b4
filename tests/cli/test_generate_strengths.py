"""``ster generate --strengths``: a table, or a document of how answers came about."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ster
from ster.cli import run
from ster.cli.generate import Asked, answer
from ster.reporting import Progress, QuietReporter
from ster.runs.sampling import Answering
from tests.cli.test_vector import words
from tests.cli.user import ABSENT, User

PROMPTS = ["the sea", "the storm waves crash .", "calm"]


@pytest.fixture
def say(user: User, capsys: pytest.CaptureFixture[str]):
    """Run a line in a folder with the toy checkpoint, prompts and a vector."""
    user.write(
        "pairs.json",
        '{"pairs": [{"positive": "the sea is calm .", "negative": "the storm ."}]}',
    )
    user.write("prompts.json", json.dumps({"prompts": PROMPTS}))
    assert run(words("train", "--layers", "1..3", output="v.json")) == 0
    capsys.readouterr()

    def say(*line: str) -> tuple[int, str, str]:
        code = run(["generate", "--model", "toy", "--max-new-tokens", "6", *line])
        return code, *capsys.readouterr()

    return say


STEERED = ("--vector", "v.json")


@pytest.mark.parametrize(
    "spelled", [("--strengths", "-4,0,2.5"), ("--strengths=-4,0,2.5",)]
)
def test_a_prompt_at_several_strengths_is_a_table(say, spelled):
    code, out, err = say("--prompt", "the sea", *STEERED, *spelled)
    assert (code, err) == (0, ABSENT)
    header, rule, *rows = out.splitlines()
    assert [header, rule] == ["| strength | answer |", "|---|---|"]
    assert [row.split("|")[1].strip() for row in rows] == ["-4", "0", "2.5"]
    for row, strength in zip(rows, ("-4", "0", "2.5"), strict=True):
        _, alone, _ = say("--prompt", "the sea", *STEERED, f"--strength={strength}")
        assert row == f"| {strength} | {' '.join(alone.split())} |"


def test_a_row_is_a_line_whatever_the_model_writes():
    from ster.cli.generate import write_table
    from ster.documents.answers import Answer

    odd = Answer(
        prompt="p", strength=1.0, text="a|b\n\x1b[2J  c", token_ids=(1,), ended="stop"
    )
    *_, row = "".join(write_table(iter([odd]), text=None)).splitlines()
    assert row == r"| 1 | a\|b \u{1b}[2J c |"


def test_the_document_says_of_every_answer_how_it_came_about(say):
    code, out, err = say(
        "--prompts", "prompts.json", "--output", "o.json", *STEERED, "--strengths=-4,0"
    )
    assert (code, out) == (0, "o.json\n")
    lines = "".join(f"answering prompt {n} of 3\n" for n in (1, 3))
    assert err == ABSENT + lines
    answers = json.loads(Path("o.json").read_bytes())["answers"]
    assert [list(each) for each in answers] == [
        ["prompt", "strength", "text", "tokens", "ended"]
    ] * 6
    assert [(each["prompt"], each["strength"]) for each in answers] == [
        (prompt, strength) for prompt in PROMPTS for strength in (-4.0, 0.0)
    ]
    runtime = ster.load("toy")
    vector = ster.SteeringVector.load("v.json")
    for each in answers:
        steer = vector * each["strength"]
        alone = runtime.generate(each["prompt"], steer=steer, max_new_tokens=6)
        assert each["text"] == alone
        assert each["tokens"] == 6 or each["ended"] == "stop"


def test_one_strength_is_in_the_document_too(say):
    line = ("--prompts", "prompts.json", "--output", "o.json")
    say(*line, *STEERED, "--strength=-3")
    document = json.loads(Path("o.json").read_bytes())
    assert [each["strength"] for each in document["answers"]] == [-3.0] * 3
    say(*line)
    document = json.loads(Path("o.json").read_bytes())
    assert [each["strength"] for each in document["answers"]] == [None] * 3


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        (("--strengths=1", "--vector=no", "--strength=1"), 2, "not both"),
        (("--strengths=1",), 2, "--strengths needs --vector"),
        (("--strengths=a", "--vector=no"), 2, 'invalid strength "a"'),
        (("--strengths=", "--vector=no"), 2, "there is no strength to answer at"),
        (("--strengths=1,nan", "--vector=no"), 2, "strength must be finite"),
        (("--strengths=0.5n", "--vector=no"), 2, "0.5n counts in lengths"),
        (("--strengths=1", "--vector=no"), 1, "failed to read steering artifact no"),
    ],
)
def test_strengths_that_cannot_be_answered_at_are_refused(say, line, code, sentence):
    given, out, err = say("--prompt", "the sea", *line)
    assert (given, out) == (code, "")
    assert sentence in err
    assert re.search(r"^Error: .+$", err, re.MULTILINE)


@pytest.mark.parametrize("strengths", [(), (*STEERED, "--strengths=-4,0")])
def test_the_closing_line_counts_what_was_read_for_answers(say, strengths):
    line = ("--prompts", "prompts.json", "--output", "o.json", "--verbose")
    code, _, err = say(*line, *strengths)
    assert code == 0
    number = r"[1-9]\d*"
    assert re.fullmatch(
        rf"{number} answers, {number} tokens \({number} distinct\), {number} tokens "
        r"written in \d+\.\d s; peak \d+ MB; wrote o\.json",
        err.splitlines()[-1],
    )


class Listener(QuietReporter):
    def __init__(self) -> None:
        self.last: Progress | None = None

    def progress(self, progress: Progress) -> None:
        self.last = progress


@pytest.mark.parametrize("strengths", [[1.0], [-4.0, 0.0]])
def test_the_path_comes_when_all_is_reported_and_the_display_is_gone(say, strengths):
    listener, open_displays = Listener(), []

    class Flags:
        @contextlib.contextmanager
        def open(self, **words: object) -> Iterator[ster.Runtime]:
            open_displays.append(self)
            yield ster.load("toy", reporter=listener)
            open_displays.pop()

    flags: Any = Flags()
    asked = Asked(
        prompts=PROMPTS,
        steer=[ster.SteeringVector.load("v.json")],
        strengths=strengths,
        how=Answering(max_new_tokens=3),
    )
    printed = answer(flags, asked, "o.json", is_table=len(strengths) > 1, text=False)
    assert next(printed) == "o.json\n"
    assert not open_displays
    assert listener.last is not None
    total = len(PROMPTS) * len(strengths)
    assert (listener.last.prompts_done, listener.last.num_prompts) == (total, total)
