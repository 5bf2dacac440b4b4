"""How far a run has come and how fast it goes, in words, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable

from ster.reporting import Progress


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


def is_done(progress: Progress) -> bool:
    """Tell whether all is done; answers may end before they have all their tokens."""
    return progress.prompts_done >= progress.num_prompts


def describe(
    progress: Progress, tokens_per_second: float, room: int | None = None
) -> str:
    """Say how far a run has come, and how long it will take where that is known.

    Args:
        progress: The state of the run.
        tokens_per_second: Measured speed; 0 where nothing was measured yet.
        room: Most characters; where they are too few, the speed is left out, then how
            far the work at hand is, then how long it will take, then what is counted.
    """
    speed = left = None
    if tokens_per_second > 0:
        speed = f"{tokens_per_second:,.0f} tokens/s"
        tokens_left = max(0, progress.num_tokens - progress.tokens_done)
        if tokens_left and not is_done(progress):
            left = f"{_clock_time(tokens_left / tokens_per_second)} left"
    count = f"{progress.prompts_done}/{progress.num_prompts}"
    counted = f"{count} {_counted(progress)}s"
    at_hand = _at_hand(progress)
    for parts in (
        (counted, at_hand, speed, left),
        (counted, at_hand, left),
        (counted, left),
        (counted,),
    ):
        words = ", ".join(filter(None, parts))
        if room is None or len(words) <= room:
            return words
    return count


def _counted(progress: Progress) -> str:
    """Name what is counted: what stands after the verb, or after what is done to it."""
    return progress.label.partition(" ")[2].rpartition(" on ")[2]


def _at_hand(progress: Progress) -> str:
    if progress.layer is not None:
        return f"block {progress.layer + 1}/{progress.num_layers}"
    noun = "token" if progress.tokens_done == 1 else "tokens"
    return f"{progress.tokens_done:,} {noun} written"


def _clock_time(seconds: float) -> str:
    """Write seconds as minutes and seconds, with hours where there are any."""
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"
