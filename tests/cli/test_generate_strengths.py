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
from ster.vectors.strengths import Strength
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


def test_a_program_gets_the_answers_as_the_document_has_them(say):
    line = ("--prompt", "the sea", *STEERED, "--strengths=-4,0.5n")
    code, out, err = say(*line, "--json")
    assert (code, err) == (0, ABSENT)
    one, other = json.loads(out)["answers"]
    assert (one["prompt"], one["strength"], one["tokens"]) == ("the sea", -4, 6)
    assert (other["strength"], other["strength_word"]) == (None, "0.5n")
    _, alone, _ = say("--prompt", "the sea", *STEERED, "--strength=-4")
    assert one["text"] == alone
    code, out, err = say(*line, "--text")
    assert "answers[0].strength: -4.0" in out.splitlines()


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
        (("--top-p=0.5",), 2, "--top-p needs --temperature above 0"),
        (("--strengths=a", "--vector=no"), 2, 'invalid strength "a"'),
        (("--strengths=", "--vector=no"), 2, "there is no strength to answer at"),
        (("--strengths=1,nan", "--vector=no"), 2, "strength must be finite"),
        (("--strength=x", "--vector=no"), 2, 'invalid strength "x"'),
        (("--strength=nan", "--vector=no"), 2, "strength must be finite"),
        (("--vector=no:x",), 2, 'invalid strength "x"; expected a number, or one'),
        (("--vector=no:",), 2, 'invalid strength ""; expected a number, or one'),
        (("--vector=no:inf",), 2, "strength must be finite"),
        (("--vector=no:1n", "--strength=2n"), 2, "2n of a vector at 1n would count"),
        (("--vector=no:1n", "--strengths=1,2n"), 2, "2n of a vector at 1n would count"),
        (("--vector=no:1",), 1, "failed to read steering artifact no"),
        (("--strengths=1", "--vector=no"), 1, "failed to read steering artifact no"),
    ],
)
def test_strengths_that_cannot_be_answered_at_are_refused(say, line, code, sentence):
    given, out, err = say("--prompt", "the sea", *line)
    assert (given, out) == (code, "")
    assert sentence in err
    assert re.search(r"^Error: .+$", err, re.MULTILINE)


def test_a_share_of_the_norms_is_a_strength_wherever_one_is_given(say):
    vector, runtime = ster.SteeringVector.load("v.json"), ster.load("toy")
    expected = runtime.generate("the sea", steer=vector.at("-2n"), max_new_tokens=6)
    for line in (
        (*STEERED, "--strength", "-2n"),
        (*STEERED, "--strength=-2n"),
        ("--vector", "v.json:-2n"),
        ("--vector=v.json:4n", "--strength", "-0.5"),
        ("--vector=v.json:-4n", "--vector=v.json:2n"),
    ):
        assert say("--prompt", "the sea", *line)[:2] == (0, expected)
    rows = say("--prompt", "the sea", *STEERED, "--strengths=-2n,0")[1].splitlines()
    assert [row.split("|")[1].strip() for row in rows[2:]] == ["-2n", "0"]
    assert rows[2] == f"| -2n | {' '.join(expected.split())} |"


def test_the_document_spells_a_strength_that_is_no_number(say):
    line = ("--prompts", "prompts.json", "--output", "o.json")
    assert say(*line, *STEERED, "--strengths=-2n,0")[0] == 0
    answers = json.loads(Path("o.json").read_bytes())["answers"]
    assert [list(each) for each in answers[:2]] == [
        ["prompt", "strength", "strength_word", "text", "tokens", "ended"],
        ["prompt", "strength", "text", "tokens", "ended"],
    ]
    said = [(each["strength"], each.get("strength_word")) for each in answers]
    assert said == [(None, "-2n"), (0.0, None)] * 3


def test_several_vectors_are_added_up_each_with_its_strength(say):
    pairs = ster.PairSet.load("pairs.json")
    ster.load("toy").train(pairs, method="pca-uncentred", layers="2,3", output="w.json")
    both = ("--vector", "v.json:4", "--vector=w.json:-1", "--strength", "0.5")
    code, out, _ = say("--prompt", "the sea", *both)
    one, other = map(ster.SteeringVector.load, ("v.json", "w.json"))
    steer = [one * 2, other * -0.5]
    runtime = ster.load("toy")
    expected = runtime.generate("the sea", steer=steer, max_new_tokens=6)
    assert (code, out) == (0, expected)
    assert expected != runtime.generate("the sea", steer=steer[0], max_new_tokens=6)
    line = ("--prompts", "prompts.json", "--output", "o.json", *both[:3])
    assert say(*line, "--strengths=0.5,1")[0] == 0
    answers = json.loads(Path("o.json").read_bytes())["answers"]
    assert (answers[0]["strength"], answers[0]["text"]) == (0.5, expected)


def test_the_name_of_a_file_wins_over_a_strength(say):
    Path("v.json").rename("v:3")
    alone = say("--prompt", "the sea", "--vector", "v:3")
    assert alone[0] == 0
    assert say("--prompt", "the sea", "--vector", "v:3:1") == alone
    assert say("--prompt", "the sea", "--vector", "v:2")[:2] == (1, "")


def test_a_vector_that_does_not_fit_is_named(say, user: User):
    document = json.loads(Path("v.json").read_bytes())
    user.write("w.json", json.dumps(document | {"model": "another"}))
    line = ("--prompt", "the sea", *STEERED, "--vector=w.json:2")
    code, out, err = say(*line)
    assert (code, out) == (1, "")
    assert err.endswith(
        'Error: artifact was trained for model "another", current model is "toy"\n\n'
        "Caused by:\n    it is w.json\n"
    )


def test_an_output_over_a_vector_is_refused(say):
    line = ("--prompts", "prompts.json", "--output", "v.json", "--vector=v.json:2")
    code, _, err = say(*line)
    assert (code, err.splitlines()[0]) == (1, "Error: failed to write v.json")


def test_a_wrong_strength_says_why_it_was_taken_for_one(say):
    code, _, err = say("--prompt", "the sea", "--vector", "no:such/v.json")
    assert code == 2
    assert "there is no file no:such/v.json: its last colon begins a strength" in err


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


@pytest.mark.parametrize("numbers", [[1.0], [-4.0, 0.0]])
def test_the_path_comes_when_all_is_reported_and_the_display_is_gone(say, numbers):
    listener, open_displays = Listener(), []

    class Flags:
        @contextlib.contextmanager
        def open(self, **words: object) -> Iterator[ster.Runtime]:
            open_displays.append(self)
            yield ster.load("toy", reporter=listener)
            open_displays.pop()

    flags: Any = Flags()
    asked = Asked(
        prompts=ster.PromptSet.of(PROMPTS),
        steer=[ster.Intervention(ster.SteeringVector.load("v.json"))],
        strengths=[Strength(value=number) for number in numbers],
        how=Answering(max_new_tokens=3),
    )
    printed = answer(flags, asked, "o.json", is_table=len(numbers) > 1, text=False)
    assert next(printed) == "o.json\n"
    assert not open_displays
    assert listener.last is not None
    total = len(PROMPTS) * len(numbers)
    assert (listener.last.prompts_done, listener.last.num_prompts) == (total, total)
