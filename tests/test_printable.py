"""Text that a stranger wrote, before a terminal shows it."""

from __future__ import annotations

import json
import warnings

import pytest

from ster.cli.answer import render
from ster.cli.progress import PlainReporter, open_console
from ster.cli.streams import say
from ster.errors import DocumentError
from ster.reporting import QuietReporter, SterWarning
from ster.text import one_line, printable

STEERING = {
    "a C0 control": "\x1b",
    "a bell": "\x07",
    "a carriage return": "\r",
    "delete": "\x7f",
    "a C1 control": "\x9b",
    "next line": "\x85",
    "a line separator": "\u2028",
    "a paragraph separator": "\u2029",
    "an override of direction": "\u202e",
    "an isolate": "\u2066",
    "the end of an isolate": "\u2069",
    "a mark of direction": "\u200f",
    "an Arabic mark of direction": "\u061c",
}
each_mark = pytest.mark.parametrize("mark", STEERING.values(), ids=STEERING.keys())


@each_mark
def test_what_steers_a_terminal_is_escaped(mark: str):
    for shown in (printable(f"a{mark}b"), one_line(f"a{mark}b")):
        assert mark not in shown
        assert shown.startswith("a\\")
        assert shown.endswith("b")


def test_other_text_is_shown_as_it_is():
    text = "Größe 🦙 👩\u200d🌾 \u0627\u0644 e\u0301 \\n \u3000"
    assert printable(text) == one_line(text) == text


def test_lines_and_tabs_stay_unless_one_line_is_asked_for():
    assert printable("a\n\tb") == "a\n\tb"
    assert one_line("a\n\tb\r") == "a\\n\\tb\\r"


@each_mark
def test_a_document_on_stdout_is_safe_and_the_same_document(mark: str):
    document = {f"k{mark}": [f"v{mark}\n", {"n": 1}]}
    shown = render(document, text=False)
    assert mark not in shown
    assert json.loads(shown) == document
    lines = render(document, text=True)
    assert mark not in lines
    assert len(lines.splitlines()) == 2


def test_bytes_that_are_no_text_are_escaped_in_a_document():
    assert "\\udcff" in render({"path": "a\udcff"}, text=False)


@each_mark
@pytest.mark.parametrize("method", ["note", "warn"])
def test_no_note_or_warning_steers_the_terminal_or_forges_a_line(
    capsys: pytest.CaptureFixture[str], mark: str, method: str
):
    getattr(PlainReporter(), method)(f"a{mark}\nError: b")
    err = capsys.readouterr().err
    assert mark not in err
    assert err.count("\n") == 1


@each_mark
def test_a_message_of_several_lines_is_escaped_too(
    capsys: pytest.CaptureFixture[str], mark: str
):
    say(f"a{mark}\nb\n")
    err = capsys.readouterr().err
    assert mark not in err
    assert len(err.split("\n")) == 3


@each_mark
def test_an_error_or_warning_in_a_notebook_is_escaped(mark: str):
    assert mark not in str(DocumentError(f"a{mark}", f"b{mark}"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        QuietReporter().warn(f"a{mark}")
    assert caught[0].category is SterWarning
    assert mark not in str(caught[0].message)


def test_a_live_display_gets_its_notes_escaped(capsys: pytest.CaptureFixture[str]):
    from ster.cli.progress import LiveReporter

    display = LiveReporter(open_console())
    display.note("a\x1b[2Jb\u202e")
    display.warn("c\x9b\nError: d")
    err = capsys.readouterr().err
    assert "a\\u{1b}[2Jb\\u{202e}\n" in err
    assert "warning: c\\u{9b}\\nError: d" in err
