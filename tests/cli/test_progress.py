"""The two reporters: lines for a file, a display for a person."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from ster.cli.progress import (
    LiveReporter,
    PlainReporter,
    SaysOnce,
    is_terminal,
    open_reporter,
)
from ster.pace import describe
from ster.reporting import Progress


def state(prompts_done: int, num_prompts: int = 5, **changes: int) -> Progress:
    fields: dict[str, Any] = {"layer": 2, "num_layers": 4}
    fields |= {"tokens_done": 30, "num_tokens": 100, **changes}
    return Progress(prompts_done=prompts_done, num_prompts=num_prompts, **fields)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    "steps", [[1, 2, 3, 4, 5], [0, 0, 5], [2, 2, 1, 4, 5, 5], [3, 9]]
)
def test_the_first_and_the_last_prompt_have_their_plain_line_once(capsys, steps):
    reporter = PlainReporter(Clock())
    for done in steps:
        reporter.progress(state(done))
    expected = "extracting prompt 1/5\nextracting prompt 5/5\n"
    assert capsys.readouterr() == ("", expected)


def test_of_the_prompts_between_there_is_a_plain_line_in_five_seconds(capsys):
    clock = Clock()
    reporter = PlainReporter(clock)
    for done, now in (
        *((0, 100.0), (1, 101.0), (2, 105.9), (3, 106.0), (3, 111.0), (4, 111.5)),
        (5, 112.0),
    ):
        clock.now = now
        reporter.progress(state(done))
    numbers = re.findall(r"extracting prompt (\d)/5\n", capsys.readouterr().err)
    assert numbers == ["1", "3", "4", "5"]


def test_one_prompt_is_the_first_and_the_last(capsys):
    reporter = PlainReporter(Clock())
    for _ in range(2):
        reporter.progress(state(1, num_prompts=1))
    assert capsys.readouterr().err == "extracting prompt 1/1\n"


def test_each_phase_has_its_own_first_and_last_line(capsys):
    reporter = PlainReporter(Clock())
    words: dict[str, Any] = {"label": "reading pair"}
    for done in range(1, 6):
        reporter.progress(replace(state(done), **words))
    for done in range(1, 6):
        reporter.progress(state(done))
    assert capsys.readouterr().err == (
        "reading pair 1/5\nreading pair 5/5\n"
        "extracting prompt 1/5\nextracting prompt 5/5\n"
    )


def test_notes_and_warnings_are_never_left_out(capsys):
    reporter = PlainReporter(Clock())
    for number in range(50):
        reporter.note(f"note {number}")
        reporter.warn(f"warning {number}")
    assert len(capsys.readouterr().err.splitlines()) == 100


def test_what_says_things_once_passes_on_what_is_new(capsys):
    reporter = SaysOnce(PlainReporter(Clock()))
    for _ in range(3):
        reporter.note("a")
        reporter.warn("b")
        reporter.progress(state(5))
    assert capsys.readouterr().err == (
        "a\nwarning: b\nextracting prompt 1/5\nextracting prompt 5/5\n"
    )


def test_of_answers_and_scores_there_is_a_plain_line_in_five_seconds(capsys):
    clock = Clock()
    reporter = PlainReporter(clock)
    for done, now in ((0, 100.0), (1, 104.9), (2, 105.0), (3, 109.9), (4, 112.0)):
        clock.now = now
        words: dict[str, Any] = {"label": "scoring response"}
        reporter.progress(replace(state(done), **words))
    first, second = capsys.readouterr().err.splitlines()
    assert first == "scoring response: 2/5 responses, block 3/4"
    assert second == "scoring response: 4/5 responses, block 3/4"


def test_a_plain_line_says_how_fast_a_run_goes_and_how_long_it_takes(capsys):
    clock = Clock()
    reporter = PlainReporter(clock)
    words: dict[str, Any] = {"label": "scoring response"}
    reporter.progress(replace(state(0, tokens_done=0), **words))
    clock.now += 6
    reporter.progress(replace(state(3, tokens_done=60), **words))
    assert capsys.readouterr().err == (
        "scoring response: 3/5 responses, block 3/4, 10 tokens/s, 0:04 left\n"
    )


def test_of_answers_that_ended_early_no_time_is_left():
    words: dict[str, Any] = {"layer": None, "label": "answering prompt"}
    progress = replace(state(5, tokens_done=1234, num_tokens=9999), **words)
    assert describe(progress, 10.0) == "5/5 prompts, 1,234 tokens written, 10 tokens/s"
    clock = Clock()
    reporter, stream = live(clock)
    reporter.progress(progress)
    reporter.close()
    assert not {"╸", "╺"} & set(words_drawn := stream.getvalue())
    assert "━" * 24 in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", words_drawn)


def test_tokens_that_are_written_have_no_block():
    progress = replace(state(3), layer=None, label="answering prompt")
    assert describe(progress, 0.0) == "3/5 prompts, 30 tokens written"


def test_plain_notes_have_no_prefix_and_warnings_have_one(capsys):
    reporter = PlainReporter()
    reporter.note("[b]a note[/b]")
    reporter.warn("too long")
    assert capsys.readouterr() == ("", "[b]a note[/b]\nwarning: too long\n")


@pytest.mark.parametrize(
    ("tty", "term", "live"),
    [
        (True, "xterm-256color", True),
        (True, "dumb", False),
        (True, "", False),
        (True, "unknown", False),
        (True, None, False),
        (False, "xterm-256color", False),
    ],
)
def test_only_a_capable_terminal_gets_the_display(monkeypatch, tty, term, live):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: tty, raising=False)
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.delenv("TERM", raising=False)
    if term is not None:
        monkeypatch.setenv("TERM", term)
    assert is_terminal() is live
    with open_reporter() as reporter:
        assert isinstance(reporter, LiveReporter if live else PlainReporter)


@pytest.mark.parametrize(
    ("progress", "speed", "text"),
    [
        (state(1), 0.0, "1/5 prompts, block 3/4"),
        (state(1), 10.0, "1/5 prompts, block 3/4, 10 tokens/s, 0:07 left"),
        (
            state(1, num_tokens=9_000_030),
            1234.4,
            "1/5 prompts, block 3/4, 1,234 tokens/s, 2:01:31 left",
        ),
        (state(5, tokens_done=100), 10.0, "5/5 prompts, block 3/4, 10 tokens/s"),
    ],
)
def test_the_state_of_a_run_in_words(progress, speed, text):
    assert describe(progress, speed) == text


@pytest.mark.parametrize(
    ("room", "text"),
    [
        (52, "1/5 steered pairs, block 3/4, 10 tokens/s, 0:07 left"),
        (51, "1/5 steered pairs, block 3/4, 0:07 left"),
        (38, "1/5 steered pairs, 0:07 left"),
        (27, "1/5 steered pairs"),
        (16, "1/5"),
    ],
)
def test_too_little_room_leaves_whole_parts_out(room, text):
    progress = replace(state(1), label="reading steered pair")
    assert describe(progress, 10.0, room) == text


def test_what_is_counted_is_all_that_is_said_of_it():
    labels = ["scoring steered response", "measuring residual norms on prompt"]
    said = [describe(replace(state(1), label=each), 0.0) for each in labels]
    assert said == ["1/5 steered responses, block 3/4", "1/5 prompts, block 3/4"]


def live(clock: Clock, **options) -> tuple[LiveReporter, io.StringIO]:
    stream = io.StringIO()
    console = Console(
        file=stream,
        force_terminal=True,
        width=100,
        markup=False,
        emoji=False,
        **options,
    )
    return LiveReporter(console, clock), stream


def words(stream: io.StringIO) -> str:
    """Take the terminal's codes out, and let each drawing have its own line."""
    text = stream.getvalue().replace("\r", "\n")
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_the_display_shows_prompts_block_speed_and_time_left():
    clock = Clock()
    reporter, stream = live(clock)
    reporter.progress(state(0, tokens_done=0))
    clock.now += 3
    reporter.progress(state(1))
    reporter.close()
    assert "0/5 prompts, block 3/4" in words(stream)
    assert "1/5 prompts, block 3/4, 10 tokens/s, 0:07 left" in words(stream)
    assert stream.getvalue().rstrip().endswith("\x1b[?25h")  # the cursor is back


def test_the_display_is_redrawn_ten_times_a_second_and_at_the_end():
    clock = Clock()
    reporter, stream = live(clock)
    for layer in range(100):
        reporter.progress(state(0, layer=layer, num_layers=100))
        clock.now += 0.01
    reporter.progress(state(5, layer=99, num_layers=100))
    reporter.close()
    drawn = re.findall(r"block (\d+)/100", words(stream))
    assert 10 <= len(set(drawn)) <= 12
    assert drawn[-1] == "100"


def test_notes_and_warnings_stand_above_the_display_unaltered():
    reporter, stream = live(Clock())
    reporter.note("before [red]x[/red] :smile:")
    reporter.progress(state(1))
    reporter.note("n" * 150)
    reporter.warn("careful")
    reporter.close()
    lines = words(stream).splitlines()
    assert "before [red]x[/red] :smile:" in lines
    assert "n" * 150 in words(stream)
    assert "warning: careful" in lines


def test_no_color_is_respected(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    reporter, stream = live(Clock())
    reporter.warn("careful")
    reporter.progress(state(1))
    reporter.close()
    assert "careful" in words(stream)
    colours = r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|9[0-7])(?:;[0-9;]*)?m"
    assert not re.search(colours, stream.getvalue())


def test_colour_is_there_without_no_color(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    reporter, stream = live(Clock(), color_system="standard")
    reporter.warn("careful")
    assert "\x1b[33m" in stream.getvalue()


def test_each_phase_has_its_own_bar():
    reporter, stream = live(Clock())
    labels: tuple[dict[str, Any], ...] = (
        {"label": "reading pair"},
        {"label": "scoring response"},
    )
    for label in labels:
        reporter.progress(replace(state(5), **label))
    reporter.close()
    last = words(stream).rstrip().splitlines()[-2:]
    assert "5/5 pairs" in last[0]
    assert "5/5 responses" in last[1]


def test_the_display_says_what_memory_is_held():
    reporter, stream = live(Clock())
    reporter.measure_memory(lambda: 123_400_000)
    reporter.progress(state(1))
    reporter.close()
    assert "1/5 prompts, block 3/4, 124 MB held" in words(stream)


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_a_narrow_terminal_keeps_a_bar_on_one_line(width):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, markup=False)
    clock = Clock()
    reporter = LiveReporter(console, clock)
    reporter.measure_memory(lambda: 10**11)
    reporter.progress(state(0, tokens_done=0))
    clock.now += 1
    reporter.progress(state(1, num_tokens=9_000_030))
    reporter.close()
    lines = words(stream).splitlines()
    last = {
        20: "1/5 prompts",
        40: "1/5 prompts, 83:20:00 left",
        60: "1/5 prompts, block 3/4, 83:20:00 left",
        80: "1/5 prompts, block 3/4, 30 tokens/s, 83:20:00 left, 100000 MB held",
    }
    assert lines[-1].lstrip("━╸╺ ").rstrip() == last[width]
    assert max(map(len, lines)) <= width
    assert len([line for line in lines if line.strip()]) <= 3
