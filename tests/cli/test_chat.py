"""``ster chat`` with the toy model: by a pipe, and at a terminal with Ctrl-C."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import contextmanager
from io import FileIO
from typing import Any

import pytest

import ster
from ster.cli import run
from ster.cli.chat import Interrupts
from ster.cli.conversation import AnswerStopped, LineDropped
from tests.cli.user import APPLIED, User
from tests.processes import LIMIT, Process, heard_until, rest, started

TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}"
CHAT = ["chat", "-m", "toy", "--max-new-tokens", "5"]


@pytest.fixture
def talker(user: User) -> User:
    """A person whose model has a chat template."""
    user.tokenizer_config(chat_template=TEMPLATE)
    return user


def says(monkeypatch: pytest.MonkeyPatch, text: str | bytes, *words: str) -> int:
    """Run a conversation with these lines on stdin."""
    data = text.encode() if isinstance(text, str) else text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return run([*CHAT, *words])


def make_vector(user: User) -> None:
    pairs = [{"positive": "the calm sea", "negative": "a loud storm"}] * 2
    user.write("pairs.json", json.dumps({"pairs": pairs, "trait_name": "calm"}))
    line = ["-m", "toy", "-p", "pairs.json", "-o", "v.json", "--layers", "2"]
    assert run(["vector", "train", *line]) == 0
    user.heard()


def test_vectors_are_applied_as_the_line_says(talker: User, monkeypatch):
    make_vector(talker)
    line = ["-v", "v.json", "--strength", "9", "--how", "at-least", "--where=prompt"]
    lines = "the sea\n/strength -40\n/again\n/vector v.json:2\na storm\n"
    assert says(monkeypatch, lines, *line) == 0
    out, _ = talker.heard()
    runtime, vector = ster.load("toy"), ster.SteeringVector.load("v.json")
    turns: list[dict[str, str]] = []
    expected: list[str] = []
    for turn, strength in (("the sea", 9.0), ("the sea", -40.0), ("a storm", -80.0)):
        if turn == "a storm":
            turns.append({"role": "assistant", "content": expected[-1]})
        turns = [each for each in turns if each["content"] != turn]
        turns.append({"role": "user", "content": turn})
        steer = ster.Intervention(vector, strength, how="at-least", where="prompt")
        pieces = runtime.stream(turns, steer=steer, max_new_tokens=5)
        expected.append("".join(pieces))
    assert out == "".join(f"{each}\n" for each in expected)


def test_a_strength_that_means_nothing_so_is_refused_and_changes_nothing(
    talker: User, monkeypatch
):
    make_vector(talker)
    lines = "/strength -1\nthe sea\n"
    # A line was refused.
    assert says(monkeypatch, lines, "-v", "v.json", "--how=clamp") == 1
    out, err = talker.heard()
    assert "clamp limits to -c..c, so c cannot be -1" in err
    vector = ster.SteeringVector.load("v.json")
    turns = [{"role": "user", "content": "the sea"}]
    steer = ster.Intervention(vector, how="clamp")
    pieces = ster.load("toy").stream(turns, steer=steer, max_new_tokens=5)
    assert out == "".join(pieces) + "\n"


def test_answers_are_those_of_the_library_turn_after_turn(talker: User, monkeypatch):
    make_vector(talker)
    lines = "the sea\n/strength 30\na storm\n/again\n/quit\nthe lake\n"
    assert says(monkeypatch, lines, "-v", "v.json", "--strength", "0") == 0
    out, err = talker.heard()
    assert err == APPLIED + "calm (caa, 1 layer) at strength 30\n"
    runtime, vector = ster.load("toy"), ster.SteeringVector.load("v.json")
    turns = [{"role": "user", "content": "the sea"}]
    first = "".join(runtime.stream(turns, max_new_tokens=5))
    turns += [{"role": "assistant", "content": first}]
    turns += [{"role": "user", "content": "a storm"}]
    then = "".join(runtime.stream(turns, steer=vector * 30, max_new_tokens=5))
    assert out == f"{first}\n{then}\n{then}\n"
    assert first != then


def test_the_end_of_stdin_ends_the_conversation_well(talker: User, monkeypatch):
    assert says(monkeypatch, "the sea") == 0
    out, _ = talker.heard()
    assert out.endswith("\n")
    assert out.strip()
    assert says(monkeypatch, "") == 0
    assert talker.heard()[0] == ""


def test_answers_that_are_drawn_differ_again_and_not_between_runs(
    talker: User, monkeypatch
):
    words = ("--temperature", "5", "--seed", "7")
    outs = []
    for _ in range(2):
        assert says(monkeypatch, "the sea\n/again\n", *words) == 0
        outs.append(talker.heard()[0])
    assert outs[0] == outs[1]
    first, again = outs[0].splitlines()
    assert first != again


def test_what_is_refused_is_said_and_the_conversation_goes_on(
    talker: User, monkeypatch
):
    lines = f"{'sea ' * 300}\n/vector nowhere.json\n/strength x\nthe sea\n"
    assert says(monkeypatch, lines) == 1
    out, err = talker.heard()
    assert len(out.splitlines()) == 1
    assert [line for line in err.splitlines() if line.startswith("Error: ")] == [
        "Error: prompt contains 300 tokens, model context allows fewer than 256",
        "Error: failed to read steering artifact nowhere.json",
        'Error: invalid strength "x"; expected a number, or one followed by n',
        "Error: 3 lines were refused",
    ]


def test_a_refused_command_of_a_script_shows_in_its_exit_code(
    talker: User, monkeypatch
):
    assert says(monkeypatch, "/nothing\n/quit\n") == 1
    assert talker.heard()[1].endswith("Error: 1 line was refused\n")


@pytest.mark.parametrize(("words", "label"), [((), "absent"), (("off",), "off")])
def test_without_a_template_there_is_no_conversation(
    user: User, monkeypatch, words, label
):
    user.damage_weights()  # which nobody looks at
    flags = [f"--chat-template={word}" for word in words]
    assert says(monkeypatch, "the sea\n", *flags) == 1
    out, err = user.heard()
    assert out == ""
    assert err.endswith(
        "Error: a conversation of several turns needs the model's chat template, and "
        f"this run's chat template is {label}\n"
    )


def test_a_vector_of_another_model_is_refused_before_a_word_is_read(
    talker: User, monkeypatch
):
    make_vector(talker)
    talker.change("v.json", model="other")
    talker.damage_weights()
    assert says(monkeypatch, "the sea\n", "-v", "v.json") == 1
    out, err = talker.heard()
    assert out == ""
    assert err.splitlines()[1] == (
        'Error: artifact was trained for model "other", current model is "toy"'
    )


def test_a_warning_of_the_vector_is_given_once(talker: User, monkeypatch):
    make_vector(talker)
    talker.change("v.json", precision="f16")
    assert says(monkeypatch, "the sea\na storm\n", "-v", "v.json") == 0
    assert talker.heard()[1].count("warning: ") == 1


def test_a_line_that_is_no_text_is_refused(talker: User, monkeypatch):
    assert says(monkeypatch, b"the sea\xff\nthe sea\n") == 1
    answers, said = talker.heard()
    assert len(answers.splitlines()) == 1
    assert said.endswith(
        "Error: failed to tokenize prompt: the bytes of the line are not UTF-8\n"
        "Error: 1 line was refused\n"
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--strength", "nan"], 2),
        (["--top-p", "7"], 2),
        (["--top-p", "0.5"], 2),
        (["--top-p", "0.5", "--temperature", "-1"], 2),
        (["--system", "nowhere"], 1),
        (["--vector", "nowhere"], 1),
        (["stray"], 2),
    ],
)
def test_bad_words_are_refused_before_anything_is_loaded(
    user: User, monkeypatch, words, code
):
    user.damage_weights()
    assert says(monkeypatch, "the sea\n", *words) == code
    out, err = user.heard()
    assert (out, err[:7]) == ("", "Error: ")


def test_a_locale_of_ascii_reads_and_writes_all_the_same(talker: User):
    environment: dict[str, Any] = {
        **os.environ,
        **{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    }
    done = subprocess.run(
        [sys.executable, "-m", "ster", *CHAT],
        input="die Größe\n/system é\n".encode(),
        capture_output=True,
        env=environment,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.strip()
    assert b"Traceback" not in done.stderr


@contextmanager
def typing_to(line: list[str]):
    """Start a process at a terminal; yield it, and the terminal's other side."""
    screen, terminal = pty.openpty()
    with FileIO(screen, "r+") as shown:
        streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
        with started([sys.executable, "-m", "ster", *line], **streams) as process:
            os.close(terminal)
            yield process, shown


def interrupt(process: Process) -> None:
    process.send_signal(signal.SIGINT)


def test_ctrl_c_stops_the_answer_and_keeps_the_conversation(talker: User, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("PYTHONUTF8", "1")
    talker.config(max_position_embeddings=100_000)
    line = ["chat", "-m", "toy", "--max-new-tokens", "90000"]
    with typing_to(line) as (process, screen):
        heard_until(screen, b"> ")
        screen.write(b"the sea\n")
        heard_until(screen, b"the sea\r\n")
        heard_until(screen, b" ")  # a word of the answer
        interrupt(process)
        heard_until(screen, b"stopped\r\n")
        heard_until(screen, b"> ")
        screen.write(b"/reset\n")
        heard_until(screen, b"all turns are forgotten\r\n")
        heard_until(screen, b"> ")
        screen.write(b"half a li")
        heard_until(screen, b"half a li")
        outlast_repeats()
        interrupt(process)
        heard_until(screen, b"> ")
        screen.write(b"\x04")
        heard = rest(screen)
        process.wait(LIMIT)
    assert process.returncode == 0
    assert b"Traceback" not in heard
    assert b"half a li" not in heard


def outlast_repeats() -> None:
    """Wait until one Ctrl-C is not taken for the one before."""
    from time import sleep

    from ster.cli.signals import REPEAT_SECONDS

    sleep(REPEAT_SECONDS)


class Signals:
    """Ctrl-C by hand, at times of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.ended = 100.0, 0
        monkeypatch.setattr("ster.cli.chat.time.monotonic", lambda: self.now)
        monkeypatch.setattr(signal, "getsignal", lambda _: self.end)
        monkeypatch.setattr(signal, "signal", lambda *_: None)

    def end(self, number: int, frame: object) -> None:
        self.ended += 1


def press(interrupts: Interrupts) -> None:
    interrupts._interrupt(signal.SIGINT, None)


def test_ctrl_c_between_two_pieces_ends_the_answer_too(monkeypatch):
    signals = Signals(monkeypatch)
    with Interrupts() as interrupts:
        pieces = interrupts.guard(iter(["a", "b", "c"]))
        assert next(pieces) == "a"
        press(interrupts)
        with pytest.raises(AnswerStopped):
            next(pieces)
    assert signals.ended == 0


def test_ctrl_c_within_a_piece_ends_the_answer_at_once(monkeypatch):
    signals = Signals(monkeypatch)
    with Interrupts() as interrupts:

        def piece():
            press(interrupts)
            yield "never"

        with pytest.raises(AnswerStopped):
            next(interrupts.guard(piece()))
        press(interrupts)  # the same Ctrl-C, which arrived twice
        assert signals.ended == 0
        signals.now += 2
        press(interrupts)
    assert signals.ended == 1


def test_ctrl_c_while_a_line_is_typed_drops_it(monkeypatch):
    signals = Signals(monkeypatch)
    with (
        Interrupts() as interrupts,
        pytest.raises(LineDropped),
        interrupts.ending(LineDropped),
    ):
        press(interrupts)
    assert signals.ended == 0


def test_ctrl_c_that_is_ignored_stays_ignored(monkeypatch):
    taken: list[object] = []
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_IGN)
    monkeypatch.setattr(signal, "signal", lambda *words: taken.append(words))
    with Interrupts():
        pass
    assert taken == []
