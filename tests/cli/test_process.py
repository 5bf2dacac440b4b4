"""Streams, pipes, terminals and signals, with a real process."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("driver.py")
LINES = (
    "a note, Größe\nwarning: a warning\n"
    "extracting prompt 1/3\nextracting prompt 2/3\nextracting prompt 3/3\n"
)
needs_full = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="/dev/full is a device of Linux"
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "i.json").write_text('{"prompts": ["a", "b", "c"]}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONUTF8", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "PYTHONIOENCODING", "STER_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def line(output: str | bytes = "o.json", layers: str = "all") -> list[str | bytes]:
    words = ["extract", "--model", "m", "--input", "i.json", "--layers", layers]
    return [sys.executable, str(DRIVER), *words, "--output", output]


def shell(redirections: str) -> subprocess.CompletedProcess[bytes]:
    command = f"exec {shlex.join(map(str, line()))} {redirections}"
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, timeout=60, check=False
    )


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
    command = line() if words == "extract" else [sys.executable, str(DRIVER), words]
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert result.returncode == 1
    assert result.stderr.decode().removeprefix(LINES) == (
        "Error: failed to write standard output\n\n"
        "Caused by:\n    No space left on device (os error 28)\n"
    )


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("words", ["extract", "--help", "nonsense"])
def test_a_pipe_without_a_reader_is_quiet(place, stream, words):
    command = line() if words == "extract" else [sys.executable, str(DRIVER), words]
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        command,
        stdout=writer if stream == "stdout" else subprocess.PIPE,
        stderr=writer if stream == "stderr" else subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert result.returncode == (2 if words == "nonsense" else 0)
    assert b"Traceback" not in (result.stderr or b"")
    assert b"Exception ignored" not in (result.stderr or b"")
    if words == "extract":
        assert Path("o.json").read_bytes() == b"begin end"


def test_a_stream_of_ascii_gets_escapes(place, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    result = subprocess.run(
        line("ö.json"), capture_output=True, timeout=60, check=False
    )
    assert (result.returncode, result.stdout) == (0, b"\\xf6.json\n")
    assert result.stderr.startswith(b"a note, Gr\\xf6\\xdfe\n")


def test_a_path_that_is_no_text_is_printed_as_it_was_given(place):
    path = b"missing\xff/../i.json"
    result = subprocess.run(line(path), capture_output=True, timeout=60, check=False)
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
    process = subprocess.Popen(
        line("o.json" if before else "new/deep/o.json", layers="hang"),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stderr is not None
        heard = b""
        while b"hanging\n" not in heard:
            heard += process.stderr.readline()
        process.send_signal(number)
        process.send_signal(number)  # one Ctrl-C often arrives twice
        out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert (out, err.decode()) == (b"", f"{word}\n")
    assert sorted(place.iterdir()) == files
    if before is not None:
        assert Path("o.json").read_bytes() == before


def test_an_ignored_signal_stays_ignored(place):
    command = f"trap '' INT; exec {shlex.join(map(str, line(layers='hang')))}"
    process = subprocess.Popen(["sh", "-c", command], stderr=subprocess.PIPE)
    with process:
        assert process.stderr is not None
        while b"hanging" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, b"Terminated\n")


def read_all(descriptor: int) -> bytes:
    """Read a terminal until its other side is closed, which Linux reports as EIO."""
    heard = b""
    try:
        while piece := os.read(descriptor, 65536):
            heard += piece
    except OSError:
        pass
    return heard


def on_a_terminal(command: list[str | bytes]) -> tuple[int, bytes, bytes]:
    screen, terminal = pty.openpty()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    with process:
        heard = read_all(screen)
        out, _ = process.communicate(timeout=60)
    os.close(screen)
    return process.returncode, out, heard


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
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        line(layers="hang"), stdout=subprocess.PIPE, stderr=terminal
    )
    os.close(terminal)
    with process:
        heard = b""
        while b"hanging" not in heard:
            heard += os.read(screen, 65536)
        process.send_signal(signal.SIGINT)
        heard += read_all(screen)
        process.communicate(timeout=60)
    os.close(screen)
    assert process.returncode == 130
    assert heard.rindex(b"\x1b[?25h") > heard.rindex(b"\x1b[?25l")
    assert heard.endswith(b"Interrupted\r\n")
    assert not Path("o.json").exists()


def test_a_terminal_that_goes_away_does_not_stop_the_run(place):
    screen, terminal = pty.openpty()
    process = subprocess.Popen(line(), stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    os.close(screen)
    with process:
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"o.json\n")
    assert Path("o.json").read_bytes() == b"begin end"


@pytest.mark.parametrize("when", ["lost", "late"])
def test_a_signal_whose_exception_is_dropped_ends_the_run(place, when):
    Path("o.json").write_bytes(b"old")
    files = sorted(place.iterdir())
    result = subprocess.run(
        line(layers=when), capture_output=True, timeout=60, check=False
    )
    said = LINES.splitlines(keepends=True)[: 3 if when == "lost" else None]
    assert (result.returncode, result.stdout) == (130, b"")
    assert result.stderr.decode() == "".join([*said, "Interrupted\n"])
    assert Path("o.json").read_bytes() == b"old"
    assert sorted(place.iterdir()) == files
