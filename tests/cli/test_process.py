"""Streams, pipes, terminals and signals, with a real process."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.processes import (
    LIMIT,
    at_a_terminal,
    finished,
    heard_until,
    on_a_terminal,
    rest,
    started,
)

ROOT = Path(__file__).parents[2]
DRIVER = [sys.executable, "-m", "tests.cli.driver"]
LINES = (
    "a note, Größe\nwarning: a warning\nextracting prompt 1/3\nextracting prompt 3/3\n"
)
needs_full = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="/dev/full is a device of Linux"
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "i.json").write_text('{"prompts": ["a", "b", "c"]}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTHONUTF8", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "PYTHONIOENCODING", "STER_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def line(output: str | bytes = "o.json", layers: str = "all") -> list[str | bytes]:
    words = ["extract", "--model", "m", "--input", "i.json", "--layers", layers]
    return [*DRIVER, *words, "--output", output]


def shell(redirections: str) -> CompletedProcess[bytes]:
    return finished(["sh", "-c", f"exec {shlex.join(map(str, line()))} {redirections}"])


def test_the_answer_is_alone_on_stdout_and_the_rest_on_stderr(place):
    result = shell("")
    assert (result.returncode, result.stdout) == (0, b"o.json\n")
    assert result.stderr.decode() == LINES
    assert Path("o.json").read_bytes() == b"begin end"


@pytest.mark.parametrize(
    "redirections",
    [
        "<&-",
        ">&-",
        "2>&-",
        "<&- >&- 2>&-",
        pytest.param("2>/dev/full", marks=needs_full),
    ],
)
def test_closed_and_full_streams_leave_the_document_whole(place, redirections):
    result = shell(redirections)
    assert result.returncode == 0
    assert result.stdout == (b"" if ">&-" in redirections.split() else b"o.json\n")
    assert result.stderr.decode() == ("" if "2>" in redirections else LINES)
    assert Path("o.json").read_bytes() == b"begin end"


@needs_full
@pytest.mark.parametrize("words", ["extract", "--help", "--version"])
def test_a_full_stdout_is_an_error(place, words):
    command = line() if words == "extract" else [*DRIVER, words]
    with open("/dev/full", "wb") as full:
        result = finished(command, stdout=full)
    assert result.returncode == 1
    assert result.stderr.decode().removeprefix(LINES) == (
        "Error: failed to write standard output\n\n"
        "Caused by:\n    No space left on device (os error 28)\n"
    )


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("words", ["extract", "--help", "nonsense"])
def test_a_pipe_without_a_reader_is_quiet(place, stream, words):
    command = line() if words == "extract" else [*DRIVER, words]
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as unread:
        result = finished(command, **{stream: unread})
    assert result.returncode == (2 if words == "nonsense" else 0)
    assert b"Traceback" not in (result.stderr or b"")
    assert b"Exception ignored" not in (result.stderr or b"")
    if words == "extract":
        assert Path("o.json").read_bytes() == b"begin end"


def test_a_stream_of_ascii_gets_escapes(place, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    result = finished(line("ö.json"))
    assert (result.returncode, result.stdout) == (0, b"\\xf6.json\n")
    assert result.stderr.startswith(b"a note, Gr\\xf6\\xdfe\n")


def test_a_path_that_is_no_text_is_printed_as_it_was_given(place):
    path = b"missing\xff/../i.json"
    result = finished(line(path))
    assert b"Traceback" not in result.stderr
    assert result.returncode in (0, 1)  # some file systems have no such name
    shown = result.stdout if result.returncode == 0 else result.stderr
    assert b"missing\xff" in shown or b"missing\\udcff" in shown


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        (signal.SIGINT, 130, "Interrupted"),
        (signal.SIGTERM, 143, "Terminated"),
        (signal.SIGHUP, 129, "Terminated"),
    ],
)
@pytest.mark.parametrize("before", [None, b"old"])
def test_a_signal_leaves_the_old_document_or_none(place, number, code, word, before):
    if before is not None:
        Path("o.json").write_bytes(before)
    files = sorted(place.iterdir())
    output = "o.json" if before else "new/deep/o.json"
    with started(line(output, layers="hang")) as process:
        heard_until(process.stderr, b"hanging\n")
        process.send_signal(number)
        process.send_signal(number)  # one Ctrl-C often arrives twice
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == code
    assert (out, err.decode()) == (b"", f"{word}\n")
    assert sorted(place.iterdir()) == files
    if before is not None:
        assert Path("o.json").read_bytes() == before


def test_an_ignored_signal_stays_ignored(place):
    command = f"trap '' INT; exec {shlex.join(map(str, line(layers='hang')))}"
    with started(["sh", "-c", command]) as process:
        heard_until(process.stderr, b"hanging\n")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (143, b"Terminated\n")


def test_a_terminal_gets_the_display_and_its_cursor_back(place):
    code, out, heard = on_a_terminal(line())
    assert (code, out) == (0, b"o.json\n")
    assert "a note, Größe\r\n".encode() in heard
    assert b"3/3 prompts, block 4/4" in heard
    assert b"extracting prompt" not in heard
    assert heard.rindex(b"\x1b[?25h") > heard.rindex(b"\x1b[?25l")


@pytest.mark.parametrize("variable", ["NO_COLOR", "TERM"])
def test_no_color_and_dumb_terminals_behave(place, monkeypatch, variable):
    monkeypatch.setenv(variable, "dumb")
    code, out, heard = on_a_terminal(line())
    assert (code, out) == (0, b"o.json\n")
    assert b"\x1b[3" not in heard
    if variable == "TERM":
        assert heard.decode() == LINES.replace("\n", "\r\n")
    else:
        assert b"3/3 prompts" in heard


def test_an_interrupted_terminal_gets_its_cursor_back(place):
    with at_a_terminal(line(layers="hang")) as (process, screen):
        heard = heard_until(screen, b"hanging")
        process.send_signal(signal.SIGINT)
        heard += rest(screen)
        process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert heard.rindex(b"\x1b[?25h") > heard.rindex(b"\x1b[?25l")
    assert heard.endswith(b"Interrupted\r\n")
    assert not Path("o.json").exists()


def test_a_terminal_that_goes_away_does_not_stop_the_run(place):
    with at_a_terminal(line()) as (process, screen):
        screen.close()
        out, _ = process.communicate(timeout=LIMIT)
    assert (process.returncode, out) == (0, b"o.json\n")
    assert Path("o.json").read_bytes() == b"begin end"


@pytest.mark.parametrize("when", ["lost", "late"])
def test_a_signal_whose_exception_is_dropped_ends_the_run(place, when):
    Path("o.json").write_bytes(b"old")
    files = sorted(place.iterdir())
    result = finished(line(layers=when))
    said = LINES.splitlines(keepends=True)[: 3 if when == "lost" else None]
    assert (result.returncode, result.stdout) == (130, b"")
    assert result.stderr.decode() == "".join([*said, "Interrupted\n"])
    assert Path("o.json").read_bytes() == b"old"
    assert sorted(place.iterdir()) == files
