"""How the tests start processes: heard with a limit, and ended with the test."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests import processes
from tests.processes import at_a_terminal, finished, heard_until, started

SLEEPS = [sys.executable, "-uc", "print('awake'); import time; time.sleep(99)"]


def test_a_process_does_not_outlive_a_test_that_fails():
    with pytest.raises(ZeroDivisionError), started(SLEEPS) as process:
        raise ZeroDivisionError
    assert process.returncode == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_a_process_at_a_terminal_does_not_either():
    with pytest.raises(ZeroDivisionError), at_a_terminal(SLEEPS) as (process, screen):
        raise ZeroDivisionError
    assert process.returncode == -signal.SIGKILL
    assert screen.closed


def test_nobody_waits_for_words_that_do_not_come(monkeypatch):
    with started(SLEEPS) as process:
        assert heard_until(process.stdout, b"awake\n") == b"awake\n"
        monkeypatch.setattr(processes, "LIMIT", 0.1)
        with pytest.raises(AssertionError, match="nothing more was said"):
            heard_until(process.stdout, b"asleep\n")
        process.kill()
        monkeypatch.undo()
        with pytest.raises(AssertionError, match="it ended before"):
            heard_until(process.stdout, b"asleep\n")


def test_what_follows_the_words_is_left_to_the_next_reader():
    with started([sys.executable, "-c", "print('one'); print('two')"]) as process:
        assert heard_until(process.stdout, b"one\n") == b"one\n"
        assert process.communicate(timeout=60)[0] == b"two\n"


def test_a_finished_process_has_its_code_and_its_streams():
    done = finished(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
