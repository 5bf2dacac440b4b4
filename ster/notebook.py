"""Progress in a notebook: a bar under the cell, with speed and time left."""

from __future__ import annotations

import html
import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

from ster.pace import Pace, describe, is_done
from ster.reporting import Progress, QuietReporter

# Shorter runs show nothing, and a bar is redrawn so often.
SOON_SECONDS = 0.5
REDRAW_SECONDS = 0.1


def is_notebook() -> bool:
    """Tell whether a kernel runs this, whose output a browser shows."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class NotebookReporter(QuietReporter):
    """Shows a bar for each phase of a run that takes a while.

    It is redrawn by ``progress`` and not by a thread, so that nothing goes on when the
    stop button has ended a run.

    Args:
        clock: Returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pace = Pace(clock)
        self._phase: tuple[str, int] | None = None
        self._begun, self._drawn = 0.0, 0.0
        self._shown: Any = None

    def progress(self, progress: Progress) -> None:
        """Redraw the phase's bar, ten times a second at most and always at the end."""
        now, speed = self._clock(), self._pace.measure(progress)
        phase = progress.label, progress.num_prompts
        if phase != self._phase:
            self._phase, self._begun, self._shown = phase, now, None
        if self._shown is None and now - self._begun < SOON_SECONDS:
            return
        if is_done(progress) or now - self._drawn >= REDRAW_SECONDS:
            self._drawn = now
            self._draw(progress, speed)
        if is_done(progress):
            self._phase = None  # the next run is another, whatever it is called

    def _draw(self, progress: Progress, speed: float) -> None:
        shown: Any = importlib.import_module("IPython.display")  # in every notebook
        most = max(1, progress.num_tokens)
        done = most if is_done(progress) else progress.tokens_done
        words = f"{progress.label}: {describe(progress, speed)}"
        bar = f'<progress value="{done}" max="{most}"></progress>'
        page = shown.HTML(f"<div>{bar} {html.escape(words)}</div>")
        if self._shown is None:
            self._shown = shown.display(page, display_id=True)
        else:
            self._shown.update(page)
