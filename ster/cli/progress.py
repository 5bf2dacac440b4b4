"""What a run says while it works: a live display on a terminal, else plain lines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ster.cli.streams import Messages, say
from ster.interrupts import raise_if_stopped
from ster.reporting import Progress, Reporter
from ster.text import one_line

if TYPE_CHECKING:
    from rich.console import Console

REDRAW_SECONDS = 0.1


@contextmanager
def open_reporter() -> Iterator[Reporter]:
    """Give the reporter that suits stderr; restore the terminal when the run ends."""
    if not is_terminal():
        yield PlainReporter()
        return
    display = LiveReporter(open_console())
    try:
        yield display
    finally:
        display.close()


def is_terminal() -> bool:
    """Tell whether stderr is a terminal that can redraw a line."""
    kind = os.environ.get("TERM") or "dumb"
    return Messages().isatty() and kind not in ("dumb", "unknown")


def open_console() -> Console:
    """Open stderr for rich, which respects NO_COLOR by itself."""
    from rich.console import Console

    return Console(file=Messages(), highlight=False, markup=False, emoji=False)  # type: ignore[arg-type]


# Runs of which every item has its line; of others there is one in some seconds.
EACH = ("extracting prompt", "reading pair")
QUIET_SECONDS = 5.0


class Pace:
    """Measures how fast a run goes, from its first progress on.

    Args:
        clock: Returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._label = ""
        self._begun, self._tokens = 0.0, 0

    def measure(self, progress: Progress) -> float:
        """Return the tokens a second; 0 where nothing was measured yet."""
        now = self._clock()
        if progress.label != self._label:
            self._label = progress.label
            self._begun, self._tokens = now, progress.tokens_done
        elapsed = now - self._begun
        return (progress.tokens_done - self._tokens) / elapsed if elapsed > 0 else 0.0


class PlainReporter:
    """One line each: notes, warnings, and every prompt that is read, in order.

    Args:
        clock: Returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lines = 0
        self._clock = clock
        self._said = clock()
        self._pace = Pace(clock)

    def note(self, sentence: str) -> None:
        """Write the note."""
        raise_if_stopped()
        say(f"{one_line(sentence)}\n")

    def warn(self, sentence: str) -> None:
        """Write the warning."""
        say(f"warning: {one_line(sentence)}\n")

    def progress(self, progress: Progress) -> None:
        """Write a line for every prompt that was finished since the last time.

        Of other runs there is one in some seconds.
        """
        raise_if_stopped()
        if progress.label not in EACH:
            self._say_seldom(progress)
            return
        last = min(progress.prompts_done, progress.num_prompts)
        numbers = range(self._lines + 1, last + 1)
        total = progress.num_prompts
        lines = [f"{progress.label} {number}/{total}\n" for number in numbers]
        if lines:
            say("".join(lines))
            self._lines = last

    def _say_seldom(self, progress: Progress) -> None:
        now, speed = self._clock(), self._pace.measure(progress)
        if now - self._said >= QUIET_SECONDS:
            self._said = now
            say(f"{progress.label}: {describe(progress, speed)}\n")


class LiveReporter:
    """A bar with prompts, block, tokens per second and time left; notes above it.

    It is redrawn by ``progress`` and not by a thread, so that it cannot outlive the run
    or draw between the lines of an error.

    Args:
        console: The terminal.
        clock: Returns seconds that never go back.
    """

    def __init__(
        self, console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self._console = console
        self._clock = clock
        self._pace = Pace(clock)
        self._begun = False
        self._drawn = float("-inf")
        self._bar = Bar(
            BarColumn(bar_width=24),
            TextColumn("{task.description}", markup=False),
            console=console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task("", total=None)

    def note(self, sentence: str) -> None:
        """Print the note above the bar."""
        raise_if_stopped()
        self._console.print(one_line(sentence), soft_wrap=True)

    def warn(self, sentence: str) -> None:
        """Print the warning above the bar."""
        line = f"warning: {one_line(sentence)}"
        self._console.print(line, style="yellow", soft_wrap=True)

    def progress(self, progress: Progress) -> None:
        """Redraw the bar, ten times a second at most and always at the end."""
        raise_if_stopped()
        now, speed = self._clock(), self._pace.measure(progress)
        self._begun = True
        if _is_done(progress) or now - self._drawn >= REDRAW_SECONDS:
            self._drawn = now
            self._draw(progress, speed)
            self._bar.start()

    def close(self) -> None:
        """Leave the last state on the screen and show the cursor again."""
        if self._begun:
            self._bar.stop()

    def _draw(self, progress: Progress, tokens_per_second: float) -> None:
        done, total = progress.tokens_done, progress.num_tokens
        self._bar.update(
            self._task,
            description=describe(progress, tokens_per_second),
            completed=done,
            total=done if _is_done(progress) else total,
            refresh=True,
        )


def _is_done(progress: Progress) -> bool:
    """Tell whether all is done; answers may end before they have all their tokens."""
    return progress.prompts_done >= progress.num_prompts


def describe(progress: Progress, tokens_per_second: float) -> str:
    """Say how far a run has come, and how long it will take where that is known.

    Args:
        progress: The state of the run.
        tokens_per_second: Measured speed; 0 where nothing was measured yet.
    """
    counted = progress.label.rpartition(" ")[2]
    parts = [f"{progress.prompts_done}/{progress.num_prompts} {counted}s"]
    if progress.layer is not None:
        parts.append(f"block {progress.layer + 1}/{progress.num_layers}")
    else:
        noun = "token" if progress.tokens_done == 1 else "tokens"
        parts.append(f"{progress.tokens_done:,} {noun} written")
    if tokens_per_second > 0:
        parts.append(f"{tokens_per_second:,.0f} tokens/s")
        tokens_left = max(0, progress.num_tokens - progress.tokens_done)
        if tokens_left and not _is_done(progress):
            parts.append(f"{_clock_time(tokens_left / tokens_per_second)} left")
    return ", ".join(parts)


def _clock_time(seconds: float) -> str:
    """Write seconds as minutes and seconds, with hours where there are any."""
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"
