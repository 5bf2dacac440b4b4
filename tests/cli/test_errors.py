"""How a refusal, and what nobody foresaw, reach a person."""

from __future__ import annotations

import sys

import pytest

from ster.cli import run
from ster.errors import CheckpointError, ConfigError, DeviceError, UsageError
from tests.cli.stubs import StubRuntime

LINE = ["extract", "--model", "m", "--input", "i.json", "--output", "o.json"]


@pytest.fixture
def stub(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STER_TRACEBACK", raising=False)
    return StubRuntime(monkeypatch)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (DeviceError("no"), 1, "Error: no\n"),
        (UsageError('unknown device "x"'), 2, 'Error: unknown device "x"\n'),
        (
            CheckpointError("failed to list d", FileNotFoundError(2, "No such file")),
            1,
            "Error: failed to list d\n\nCaused by:\n    No such file (os error 2)\n",
        ),
        (
            ConfigError("outer", "middle", "inner"),
            1,
            "Error: outer\n\nCaused by:\n    0: middle\n    1: inner\n",
        ),
        (
            ConfigError("outer", "two\nlines"),
            1,
            "Error: outer\n\nCaused by:\n    two\n    lines\n",
        ),
        (
            ConfigError("outer", "two\nlines", "b"),
            1,
            "Error: outer\n\nCaused by:\n    0: two\n       lines\n    1: b\n",
        ),
        (MemoryError(), 1, "Error: out of memory\n"),
        (
            RecursionError("maximum recursion depth exceeded"),
            1,
            "Error: unexpected RecursionError: maximum recursion depth exceeded "
            "(STER_TRACEBACK=1 shows where)\n",
        ),
        (
            ZeroDivisionError("a\nb"),
            1,
            "Error: unexpected ZeroDivisionError: a b (STER_TRACEBACK=1 shows where)\n",
        ),
        (
            BrokenPipeError(32, "Broken pipe"),
            1,
            "Error: unexpected BrokenPipeError: [Errno 32] Broken pipe "
            "(STER_TRACEBACK=1 shows where)\n",
        ),
        (KeyboardInterrupt(), 130, "Interrupted\n"),
    ],
)
@pytest.mark.parametrize("place", ["check_device", "open_runtime"])
def test_an_error_becomes_its_sentence_and_exit_code(
    stub, capsys, place, error, code, text
):
    stub.fail[place] = error
    assert run(LINE) == code
    assert capsys.readouterr() == ("", text)


def test_the_traceback_is_shown_to_those_who_ask(stub, monkeypatch, capsys):
    monkeypatch.setenv("STER_TRACEBACK", "1")
    stub.fail["open_runtime"] = ZeroDivisionError("by zero")
    assert run(LINE) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback (most recent call last):\n")
    assert "in open_runtime" in err
    assert "\nError: unexpected ZeroDivisionError: by zero " in err


def test_a_refusal_never_shows_its_traceback(stub, monkeypatch, capsys):
    monkeypatch.setenv("STER_TRACEBACK", "1")
    stub.fail["open_runtime"] = DeviceError("no")
    assert run(LINE) == 1
    assert capsys.readouterr().err == "Error: no\n"


def test_what_a_library_prints_does_not_reach_the_answer(stub, monkeypatch, capsys):
    def chatty(directory):
        print("loading ...")

    monkeypatch.setattr(sys.modules["ster.toy"], "write_toy_checkpoint", chatty)
    assert run(["toy-model", "d"]) == 0
    assert capsys.readouterr().out == "d\n"
