"""What a run says while it works: a live display on a terminal, else plain lines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ster.cli.streams import Messages, say
from ster.interrupts import raise_if_stopped
from ster.pace import Pace, describe, is_done
from ster.reporting import Progress, Reporter
from ster.text import megabytes, one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

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


# Runs that say which item they are at; of the others a line says how far they are.
EACH = ("extracting prompt", "reading pair")
QUIET_SECONDS = 5.0


class Seldom:
    """Lets one line through in some seconds, beside the first and the last.

    Args:
        clock: Returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: float | None = None

    def passes(self, *, is_last: bool = False) -> bool:
        """Tell whether a line is to be said now; then it counts as said."""
        now = self._clock()
        if not is_last and self._said is not None and now - self._said < QUIET_SECONDS:
            return False
        self._said = now
        return True


class PlainReporter:
    """One line each: notes, warnings, and how far a run is, once in some seconds.

    Args:
        clock: Returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pace = Pace(clock)
        self._phase, self._line = "", 0
        self._seldom = Seldom(clock)

    def note(self, sentence: str) -> None:
        """Write the note."""
        raise_if_stopped()
        say(f"{one_line(sentence)}\n")

    def warn(self, sentence: str) -> None:
        """Write the warning."""
        say(f"warning: {one_line(sentence)}\n")

    def progress(self, progress: Progress) -> None:
        """Write a line where one is due.

        Of prompts and pairs that are read these are the first, the last, and one in
        some seconds; of other runs only the latter.
        """
        raise_if_stopped()
        if progress.label != self._phase:
            self._phase, self._line = progress.label, 0
            self._seldom = Seldom(self._clock)
            if progress.label not in EACH:
                self._seldom.passes()  # the seconds count from the beginning
        if progress.label in EACH:
            self._say_item(progress)
        else:
            self._say_state(progress, self._pace.measure(progress))

    def _say_item(self, progress: Progress) -> None:
        """Say at which item a run is: the first and the last are never left out."""
        total = progress.num_prompts
        last = min(progress.prompts_done, total)
        due = [1] if last >= 1 and self._line == 0 and last < total else []
        if last == total:
            due = [1, total] if self._line == 0 and total > 1 else [total]
        elif self._line:
            due = [last]
        if not due or last <= self._line:
            return
        if self._seldom.passes(is_last=last == total):
            self._line = due[-1]
            say("".join(f"{progress.label} {each}/{total}\n" for each in due))

    def _say_state(self, progress: Progress, speed: float) -> None:
        if self._seldom.passes():
            say(f"{progress.label}: {describe(progress, speed)}\n")


class SaysOnce:
    """Passes on what a reporter has not been told before.

    Args:
        reporter: Who is told.
    """

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._said: set[str] = set()

    def note(self, sentence: str) -> None:
        """Pass on a new note."""
        if sentence not in self._said:
            self._said.add(sentence)
            self._reporter.note(sentence)

    def warn(self, sentence: str) -> None:
        """Pass on a new warning."""
        if sentence not in self._said:
            self._said.add(sentence)
            self._reporter.warn(sentence)

    def progress(self, progress: Progress) -> None:
        """Pass on how far the run is."""
        self._reporter.progress(progress)


class LiveReporter:
    """A bar for each phase, with speed, time left and memory; notes stand above them.

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
        from rich.table import Column

        self._console = console
        self._clock = clock
        self._pace = Pace(clock)
        self._held: Callable[[], int] | None = None
        self._drawn = float("-inf")
        line = Column(no_wrap=True, overflow="crop")
        self._bar = Bar(
            BarColumn(bar_width=self._bar_width),
            TextColumn("{task.description}", markup=False, table_column=line),
            console=console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._phase = ""
        self._task: TaskID | None = None

    def measure_memory(self, held: Callable[[], int]) -> None:
        """Show the bytes that are held, too.

        Args:
            held: Returns how many there are now.
        """
        self._held = held

    def note(self, sentence: str) -> None:
        """Print the note above the bars."""
        raise_if_stopped()
        self._console.print(one_line(sentence), soft_wrap=True)

    def warn(self, sentence: str) -> None:
        """Print the warning above the bars."""
        line = f"warning: {one_line(sentence)}"
        self._console.print(line, style="yellow", soft_wrap=True)

    def progress(self, progress: Progress) -> None:
        """Redraw the phase's bar, ten times a second at most and always at the end."""
        raise_if_stopped()
        now, speed = self._clock(), self._pace.measure(progress)
        is_new = self._task is None or progress.label != self._phase
        if is_new:
            self._phase = progress.label
            self._task = self._bar.add_task("", total=None)
        if is_new or is_done(progress) or now - self._drawn >= REDRAW_SECONDS:
            self._drawn = now
            self._draw(progress, speed)
            self._bar.start()

    def close(self) -> None:
        """Leave the last state on the screen and show the cursor again."""
        if self._task is not None:
            self._bar.stop()

    @property
    def _bar_width(self) -> int:
        """The width of a bar: what a line's words leave, within bounds."""
        width = self._console.width
        return 24 if width >= 100 else 12 if width >= 60 else 5

    def _draw(self, progress: Progress, tokens_per_second: float) -> None:
        if self._task is None:
            return
        done, total = progress.tokens_done, progress.num_tokens
        room = self._console.width - self._bar_width - 1
        words = describe(progress, tokens_per_second, room)
        held = None if self._held is None else megabytes(self._held())
        if held is not None and len(words) + len(held) + 7 <= room:
            words = f"{words}, {held} held"
        self._bar.update(
            self._task,
            description=words,
            completed=done,
            total=done if is_done(progress) else total,
            refresh=True,
        )
