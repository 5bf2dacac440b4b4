"""What a person meets at the edge: early Ctrl-C, odd locales, outputs to stdout."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ster
from ster.cli import run as run_line
from ster.cli.generate import Asked, answer
from ster.documents.prompt_sets.value import PromptSet
from ster.runs.sampling import Answering
from ster.vectors.strengths import Strength

INTERRUPTED_AT_IMPORT = """
import os, signal, sys
module = sys.argv.pop(1)

class Interrupt:
    def find_spec(name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt)
from ster.__main__ import main
main()
"""
PAIRS = {"pairs": [{"positive": "the calm sea", "negative": "a loud storm"}] * 2}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ster.write_toy_checkpoint("toy")
    Path("prompts.json").write_text('{"prompts": ["the sea", "a storm", "calm"]}')
    Path("pairs.json").write_text(json.dumps(PAIRS))
    return tmp_path


def run(
    *words: str | bytes, stdout: int = subprocess.PIPE, **environment: Any
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "ster", *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "module",
    ["ster.cli", "ster.errors", "typer", "ster.cli.app", "numpy", "ster.runs.session"],
)
def test_ctrl_c_while_modules_are_loaded_is_one_line(place: Path, module: str):
    line = ["generate", "--model", "toy", "--prompt", "the sea"]
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT_IMPORT, module, *line],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (130, b"Interrupted\n")


def test_ctrl_c_that_the_caller_ignores_stays_ignored(place: Path):
    script = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    line = ["generate", "--model", "toy", "--prompt", "the sea"]
    result = subprocess.run(
        [sys.executable, "-c", script + INTERRUPTED_AT_IMPORT, "ster.cli", *line],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0


ASCII: dict[str, Any] = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_a_prompt_is_utf_8_whatever_the_locale(place: Path):
    line = ("generate", "--model", "toy", "--max-new-tokens", "5", "--prompt")
    plain, ascii_only = run(*line, "ü sea"), run(*line, "ü sea", **ASCII)
    assert ascii_only.returncode == 0
    assert ascii_only.stdout == plain.stdout != b""


@pytest.mark.parametrize("environment", [{}, ASCII, {"PYTHONUTF8": "1"}])
def test_a_prompt_that_is_no_text_is_refused_truly(place: Path, environment: Any):
    ran = run("generate", "--model", "toy", "--prompt", b"a\xff", **environment)
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert ran.stderr == (
        b"Error: failed to tokenize prompt: the bytes of --prompt are not UTF-8\n"
    )


def test_a_model_that_is_no_text_cannot_be_recorded_and_is_refused_at_once(
    place: Path, capsys: pytest.CaptureFixture[str]
):
    line = ["--model", "m\udcff", "--input", "prompts.json", "--output", "o.json"]
    assert run_line(["extract", *line]) == 1
    assert capsys.readouterr().err.startswith("Error: failed to write o.json\n")
    assert not Path("o.json").exists()


LINES = {
    "extract": (
        *("extract", "--model", "toy", "--input", "prompts.json", "--layers", "0"),
    ),
    "train": (
        *("vector", "train", "--model", "toy", "--pairs", "pairs.json"),
        *("--layers", "0"),
    ),
    "optimize": (
        *("vector", "optimize", "--model", "toy", "--pairs", "pairs.json"),
        *("--layers", "0", "--holdout", "0.5"),
    ),
    "evaluate": ("vector", "evaluate", "--model", "toy", "--pairs", "pairs.json"),
    "generate": (
        *("generate", "--model", "toy", "--prompts", "prompts.json"),
        *("--max-new-tokens", "2"),
    ),
}


@pytest.mark.parametrize("command", [name for name in LINES if name != "evaluate"])
@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1"])
def test_a_document_on_standard_output_is_alone_there(
    place: Path, command: str, path: str, capfdbinary: pytest.CaptureFixture[bytes]
):
    assert run_line([*LINES[command], "--output", "o.json"]) == 0
    assert capfdbinary.readouterr().out != b""
    assert run_line([*LINES[command], "--output", path]) == 0
    assert capfdbinary.readouterr().out == Path("o.json").read_bytes()


def test_a_document_is_appended_to_a_log(place: Path):
    assert run_line([*LINES["extract"], "--output", "o.json"]) == 0
    Path("log").write_bytes(b"old\n")
    with open("log", "ab") as log:
        ran = run(*LINES["extract"], "--output", "/dev/stdout", stdout=log.fileno())
    assert ran.returncode == 0
    assert Path("log").read_bytes() == b"old\n" + Path("o.json").read_bytes()


@pytest.mark.parametrize("strength", ["1.0", "1", "-2"])
def test_a_strength_without_a_vector_is_a_usage_error(
    strength: str, capsys: pytest.CaptureFixture[str]
):
    line = ["generate", "--model", "toy", "--prompt", "a", "--strength", strength]
    assert run_line(line) == 2
    assert capsys.readouterr() == ("", "Error: --strength needs --vector\n")


@pytest.mark.parametrize("word", ["x", "=1", "a b=1", "1=2", ""])
def test_a_template_argument_is_a_name_and_a_value(
    word: str, capsys: pytest.CaptureFixture[str]
):
    line = ["generate", "--model", "toy", "--prompt", "a", "--template-arg", word]
    assert run_line(line) == 2
    assert "expected NAME=VALUE" in capsys.readouterr().err


STOPPED_AFTER_TWO = """
import os, signal
from ster.runs import writing

grow, ended = writing.grow, set()

def stopped(*arguments):
    for text in grow(*arguments):
        yield text
        if text.ended:
            ended.add(text.number)
        if ended == {0, 1}:
            os.kill(os.getpid(), signal.SIGINT)

writing.grow = stopped
from ster.__main__ import main
main()
"""


def test_an_interrupt_keeps_the_finished_answers_and_the_old_document(place: Path):
    Path("o.json").write_bytes(b"old")
    line = [*LINES["generate"], "--output", "o.json"]
    ran = subprocess.run(
        [sys.executable, "-c", STOPPED_AFTER_TWO, *line],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (130, b"")
    assert ran.stderr.decode().splitlines()[-2:] == [
        "kept 2 answers of 3 in o.json.partial",
        "Interrupted",
    ]
    assert Path("o.json").read_bytes() == b"old"
    kept = json.loads(Path("o.json.partial").read_bytes())
    assert run_line([*LINES["generate"], "--output", "whole.json"]) == 0
    whole = json.loads(Path("whole.json").read_bytes())
    assert kept == {**whole, "answers": whole["answers"][:2]}


def test_an_artifact_cannot_steer_the_terminal(
    place: Path, capfd: pytest.CaptureFixture[str]
):
    run_line([*LINES["train"], "--output", "v.json"])
    document = json.loads(Path("v.json").read_bytes())
    evil = "\x1b[2J\x9b\u202e\u2028\nError: x\r"
    document |= {"precision": evil, "trait_name": evil, "metadata": {evil: evil}}
    Path("v.json").write_text(json.dumps(document))
    for words in (
        ["vector", "inspect", "v.json"],
        ["vector", "inspect", "--text", "v.json"],
        [*LINES["evaluate"], "--vector", "v.json"],
        ["generate", "--model", "toy", "--prompt", "sea", "--vector", "v.json"],
        ["generate", "--model", "toy", "--prompt", "sea", "--vector", evil],
        ["generate", "--model", "toy", "--prompt", "sea", f"--{evil}"],
        [evil],
    ):
        run_line(words)
        shown = "".join(capfd.readouterr())
        assert not set(shown) & set("\x1b\x9b\u202e\u2028\r"), words
        assert "\nError: x" not in shown, words


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("watched", [True, False])
def test_a_model_does_not_steer_the_terminal_and_a_pipe_gets_its_text(
    monkeypatch: pytest.MonkeyPatch, watched: bool
):
    class Flags:
        @contextlib.contextmanager
        def open(self, **words: object) -> Iterator[Flags]:
            yield self

        def stream(self, prompt: str, **words: object) -> list[str]:
            return ["a\x1b[2J", "\nb"]

    flags: Any = Flags()
    stdout = (Terminal if watched else io.TextIOWrapper)(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", stdout)
    asked = Asked(
        prompts=PromptSet.of(["p"]),
        steer=[],
        strengths=[Strength(value=1.0)],
        how=Answering(),
    )
    pieces = list(answer(flags, asked, None, is_table=False, text=False))
    assert "".join(pieces) == ("a\\u{1b}[2J\nb\n" if watched else "a\x1b[2J\nb")
