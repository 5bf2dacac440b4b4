"""Real runs of the toy model: pipes, terminals, and ends that come too early."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.cli.user import ABSENT, OLD, User
from tests.processes import (
    LIMIT,
    Process,
    at_a_terminal,
    finished,
    heard_until,
    on_a_terminal,
    rest,
    started,
)

WORDS = ["the", "sea", "is", "calm", "and", "quiet", "tonight", "storm", "waves"]


@pytest.fixture(autouse=True)
def terminal(monkeypatch) -> None:
    monkeypatch.setenv("PYTHONUTF8", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def slow(user: User) -> User:
    """A person whose prompts take some seconds."""
    draw = random.Random(0)
    user.prompts(*(" ".join(draw.choices(WORDS, k=200)) for _ in range(600)))
    return user


def command(user: User, *words: str, **flags: str) -> list[str]:
    return [sys.executable, "-m", "ster", *user.line(words, **flags)]


@pytest.fixture
def many(user: User) -> User:
    """A person with so many prompts that a run is long in the middle of them."""
    draw = random.Random(0)
    user.prompts(*(" ".join(draw.choices(WORDS, k=40)) for _ in range(3000)))
    return user


@contextmanager
def in_the_middle(line: list[str]) -> Iterator[Process]:
    """Start a run and wait until its first prompts are done and more are not."""
    with started(line) as process:
        heard_until(process.stderr, b"extracting prompt 1/3000\n")
        yield process


def rest_of(process: Process) -> tuple[bytes, str]:
    """Read to the end: stdout, and what stderr says beside progress."""
    out, err = process.communicate(timeout=LIMIT)
    lines = err.decode().splitlines(keepends=True)
    return out, "".join(line for line in lines if "extracting prompt" not in line)


@pytest.mark.parametrize(
    ("number", "code", "word", "older"),
    [
        (signal.SIGINT, 130, "Interrupted\n", None),
        (signal.SIGTERM, 143, "Terminated\n", OLD),
    ],
    ids=["new", "old"],
)
def test_a_run_that_is_told_to_end_leaves_the_old_document_or_none(
    many: User, number, code, word, older
):
    output = "new/folder/o.json" if older is None else "o.json"
    if older is not None:
        many.write("o.json", older)
    before = many.snapshot()
    with in_the_middle(command(many, output=output)) as process:
        process.send_signal(number)
        assert rest_of(process) == (b"", word)
        assert process.returncode == code
    assert many.snapshot() == before


def test_a_killed_run_leaves_the_old_document_and_the_next_run_replaces_it(many: User):
    many.write("o.json", OLD)
    before = many.snapshot()
    with in_the_middle(command(many)) as process:
        process.kill()
        assert rest_of(process) == (b"", "")
    after = many.snapshot()
    left = after.keys() - before.keys()
    assert {name: after[name] for name in before} == before
    assert [name[:6] for name in left] == [".ster-"]
    many.prompts("the sea")
    assert many.runs().code == 0
    assert len(many.document()["records"]) == 1


@pytest.mark.timeout(60)
def test_ctrl_c_ends_a_template_that_loops(user: User):
    loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
    condition = (
        "{% if 'sea' in messages[0].content %}" + loop + "{% endfor %}{% endif %}"
    )
    user.tokenizer_config(chat_template=condition + "{{ messages[0].content }}")
    with started(command(user)) as process:
        heard_until(process.stderr, b"\n")  # a note, before prompts are rendered
        process.send_signal(signal.SIGINT)
        assert rest_of(process) == (b"", "Interrupted\n")
    assert process.returncode == 130
    assert not os.path.exists("o.json")


@pytest.mark.parametrize("redirections", ["<&- >&- 2>&-", ">/dev/null 2>&1"])
def test_closed_streams_do_not_spoil_the_document(user: User, redirections):
    done = finished(["sh", "-c", f"exec {shlex.join(command(user))} {redirections}"])
    assert done.returncode == 0
    assert (done.stdout, done.stderr) == (b"", b"")
    assert len(user.document()["records"]) == 2


@pytest.mark.parametrize("reads", ["stdout", "stderr"])
def test_a_reader_that_leaves_early_does_not_stop_the_run(many: User, reads):
    """As with ``ster extract ... 2>&1 | head -1``."""
    reader, writer = os.pipe()
    with (
        open(reader, "rb", buffering=0) as read,
        started(command(many, "--layers", "0"), **{reads: writer}) as process,
    ):
        os.close(writer)
        if reads == "stderr":
            heard_until(read, b"\n")
        read.close()
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    assert b"Traceback" not in (err or b"")
    assert b"BrokenPipe" not in (err or b"")
    assert out == (None if reads == "stdout" else b"o.json\n")
    assert len(many.document()["records"]) == 3000


def test_a_terminal_shows_a_display_that_ends_complete(user: User):
    code, out, heard = on_a_terminal(list(command(user)))
    assert (code, out) == (0, b"o.json\n")
    assert ABSENT.strip().encode() in heard
    assert b"2/2 prompts, block 4/4" in heard
    assert b"extracting prompt" not in heard
    assert heard.rindex(b"\x1b[?25h") > heard.rindex(b"\x1b[?25l")


def test_a_refusal_on_a_terminal_is_plain_text_on_its_own_line(user: User):
    user.write("toy/tokenizer.json", "{}")
    code, out, heard = on_a_terminal(list(command(user)))
    assert (code, out) == (1, b"")
    assert heard.startswith(b"Error: failed to load tokenizer toy/tokenizer.json: ")
    assert b"\x1b" not in heard


def test_a_run_that_breaks_down_on_a_terminal_gives_it_back_in_order(user: User):
    user.weights(
        lambda tensors: tensors["model.layers.3.mlp.up_proj.weight"].fill(3e38)
    )
    code, out, heard = on_a_terminal(list(command(user)))
    assert (code, out) == (1, b"")
    sentence = b"Error: layer 3 of prompt 1 is not finite at --precision f32\r\n"
    assert sentence in heard
    assert heard.index(sentence) > heard.rindex(b"\x1b[?25h")
    assert heard[: heard.index(sentence)].endswith((b"\n", b"\x1b[?25h"))


def test_ctrl_c_at_a_terminal_gives_the_cursor_back(slow: User):
    with at_a_terminal(command(slow)) as (process, screen):
        heard = heard_until(screen, b"/600 prompts")
        process.send_signal(signal.SIGINT)
        heard += rest(screen)
        process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert heard.endswith(b"Interrupted\r\n")
    assert heard.rindex(b"\x1b[?25h") > heard.rindex(b"\x1b[?25l")
    assert not os.path.exists("o.json")


def test_two_runs_into_one_place_leave_one_whole_document(user: User):
    lines = [command(user, "--layers", layer) for layer in ("0", "1", "2")]
    with ExitStack() as stack:
        for process in [stack.enter_context(started(line)) for line in lines]:
            process.communicate(timeout=LIMIT)
            assert process.returncode == 0
    document = json.loads((user.folder / "o.json").read_bytes())
    assert len(document["records"]) == 2
    assert len({tuple(record["layers"]) for record in document["records"]}) == 1
    assert sorted(path.name for path in user.folder.iterdir()) == [
        "o.json",
        "prompts.json",
        "toy",
    ]
