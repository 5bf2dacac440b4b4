"""Prompts on the command line: files of every form, a pipe, words, and both outputs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ster.cli import run
from tests.cli.user import ABSENT, PROMPTS, User
from tests.processes import finished, on_a_terminal

TEXTS: list[str] = json.loads(PROMPTS)["prompts"]
AS_LINES = "".join(json.dumps({"text": text, "n": 1}) + "\n" for text in TEXTS)
CHAT = [{"role": "user", "content": "the sea"}, {"role": "user", "content": "calm"}]
ASK = ["generate", "--model", "toy", "--max-new-tokens", "2", "--prompts"]


def reading(*words: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    """Run ``ster extract`` in a process of its own, with something on its stdin."""
    line = [sys.executable, "-m", "ster", "extract", "--model", "toy", *words]
    Path("stdin").write_bytes(stdin)
    with open("stdin", "rb") as pipe:
        done = finished(line, stdin=pipe)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("p.json", json.dumps(TEXTS)),
        ("p.jsonl", AS_LINES),
        ("p.csv", "prompt,n\n" + "".join(f"{text},1\n" for text in TEXTS)),
        ("p.tsv", "n\ttext\n" + "".join(f"1\t{text}\n" for text in TEXTS)),
        ("p.txt", "\n\n".join(TEXTS)),
    ],
)
def test_every_form_of_file_writes_the_same_document(user: User, name: str, data: str):
    assert user.runs().code == 0
    user.write(name, data)
    assert user.runs(input=name, output="other.json").out == "other.json\n"
    assert user.document("other.json") == user.document()


def test_prompts_may_stand_on_the_line(user: User):
    assert user.runs().code == 0
    line = ["extract", "--model", "toy", "--output", "other.json"]
    assert run([*line, "--prompt", TEXTS[0], f"--prompt={TEXTS[1]}"]) == 0
    assert user.document("other.json") == user.document()


@pytest.mark.parametrize(
    "stdin", [PROMPTS, AS_LINES.encode(), "\n".join(TEXTS).encode()]
)
def test_standard_input_and_output_are_a_dash(user: User, stdin: bytes):
    assert user.runs().code == 0
    code, out, err = reading("--input", "-", "--output", "-", stdin=stdin)
    assert (code, out) == (0, (user.folder / "o.json").read_bytes())
    assert err.decode().startswith(ABSENT)
    assert not (user.folder / "-").exists()


def test_a_pipe_that_holds_nothing_is_refused_before_the_model(user: User):
    user.damage_weights()
    assert reading("--input", "-", "--output", "o.json") == (
        1,
        b"",
        b"Error: prompt set contains no prompts\n\n"
        b"Caused by:\n    standard input is empty\n",
    )


def test_a_terminal_is_told_that_it_is_read(user: User):
    line = [sys.executable, "-c", AT_A_TERMINAL, "extract", "--model", "toy"]
    code, out, shown = on_a_terminal([*line, "--input", "-", "--output", "o.json"])
    assert (code, out) == (1, b"")
    assert shown.splitlines() == [
        b"reading prompts from this terminal until Ctrl-D",
        b"Error: prompt set contains no prompts",
        b"",
        b"Caused by:",
        b"    standard input is empty",
    ]


AT_A_TERMINAL = """
import io, sys

class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True

sys.stdin = Terminal(io.BytesIO())
from ster.__main__ import main
main()
"""


def test_the_file_behind_standard_input_is_not_written_over(user: User):
    code, _, err = reading("--input", "-", "--output", "stdin", stdin=PROMPTS)
    assert code == 1
    assert err == (
        b"Error: failed to write stdin\n\nCaused by:\n    it is this run's input\n"
    )
    assert (user.folder / "stdin").read_bytes() == PROMPTS


@pytest.mark.parametrize("words", [[], ["--input", "p", "--prompt", "a"]])
def test_prompts_come_in_exactly_one_way(
    user: User, words: list[str], capsys: pytest.CaptureFixture[str]
):
    assert run(["extract", "--model", "toy", "--output", "o.json", *words]) == 2
    sentence = "Error: give either --input or --prompt\n"
    assert capsys.readouterr() == ("", sentence)


def test_a_prompt_of_the_line_that_is_blank_or_no_text_is_refused(
    user: User, capsys: pytest.CaptureFixture[str]
):
    line = ["extract", "--model", "toy", "--output", "o.json", "--prompt", "a"]
    assert run([*line, "--prompt", " "]) == 1
    which = "\n\nCaused by:\n    prompt 2 is blank\n"
    assert capsys.readouterr() == ("", f"Error: prompt must not be empty{which}")
    assert run([*line[:-1], ""]) == 1  # one of one
    assert capsys.readouterr() == ("", "Error: prompt must not be empty\n")
    assert run([*line, "--prompt", "\udcff"]) == 1
    sentence = "failed to tokenize prompt: the bytes of --prompt are not UTF-8"
    assert capsys.readouterr() == ("", f"Error: {sentence}\n")


@pytest.mark.parametrize(
    ("name", "data", "sentence", "cause"),
    [
        ("p.jsonl", "1", "invalid prompt JSON in p.jsonl", "line 1: neither a string"),
        ("p.csv", "a\nb", "invalid prompt CSV in p.csv", "no column `prompt`"),
        ("p.txt", b"\xff", "failed to read p.txt", "invalid UTF-8 at byte 0"),
        ("p.csv", "text\n''\n\" \"", "prompt must not be empty", "prompt 2, on line 3"),
    ],
)
def test_a_bad_file_is_refused_before_the_model_is_looked_for(
    user: User, name: str, data: str | bytes, sentence: str, cause: str
):
    user.write(name, data)
    for line in (user.line(input=name, model="gone"), [*ASK, name, "--output", "o"]):
        ran = finished([sys.executable, "-m", "ster", *line])
        first, _, rest = ran.stderr.decode().partition("\n\nCaused by:\n    ")
        assert (ran.returncode, ran.stdout) == (1, b"")
        assert first == f"Error: {sentence}"
        assert rest.startswith(cause)


@pytest.mark.parametrize("source", ["p.txt", "p.csv", "-"])
def test_prompts_to_answer_come_in_the_same_forms(user: User, source: str):
    assert run([*ASK, "prompts.json", "--output", "o.json"]) == 0
    user.write("p.txt", "\n".join(TEXTS))
    user.write("p.csv", "\n".join(["text", *TEXTS]))
    with open("prompts.json", "rb") as stdin:
        line = [sys.executable, "-m", "ster", *ASK, source, "--output", "-"]
        ran = finished(line, stdin=stdin)
    assert (ran.returncode, ran.stdout) == (0, (user.folder / "o.json").read_bytes())


def test_chats_are_answered_where_there_is_a_template(user: User):
    user.write("p.jsonl", json.dumps({"messages": CHAT}))
    line = [*ASK, "p.jsonl", "--output", "o.json"]
    assert run(line) == 1
    user.tokenizer_config(
        chat_template="{% for m in messages %}{{ m.content }} {% endfor %}"
    )
    assert run(line) == 0
    (of_chat,) = user.document()["answers"]
    user.prompts("the sea calm")
    off = ["--chat-template", "off"]
    assert run([*ASK, "prompts.json", "--output", "o.json", *off]) == 0
    (of_text,) = user.document()["answers"]
    assert of_chat == {**of_text, "prompt": "calm"}


def test_a_chat_that_cannot_be_answered_is_refused_before_the_model_is_looked_for(
    user: User, capsys: pytest.CaptureFixture[str]
):
    answered = [CHAT[0], {"role": "assistant", "content": "a"}]
    user.write("p.jsonl", json.dumps({"messages": answered}))
    line = ["generate", "--model", "gone", "--prompts", "p.jsonl"]
    assert run([*line, "--output", "o.json"]) == 1
    assert capsys.readouterr() == (
        "",
        "Error: prompt 1 ends with the assistant's turn, so nothing is left to "
        "answer\n",
    )


@pytest.mark.parametrize(
    ("command", "flag"), [("extract", "input"), ("generate", "prompts")]
)
def test_the_help_names_every_form(
    command: str, flag: str, capsys: pytest.CaptureFixture[str]
):
    assert run([command, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    _, _, entry = shown.partition(f"--{flag} <FILE> ")
    assert ".json, .jsonl, .csv, .tsv or .txt, or - for standard input" in entry
