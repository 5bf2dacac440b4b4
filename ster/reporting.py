"""What a run says while it works, and to whom: the terminal, a notebook, or nobody.

The library calls a ``Reporter``; it never prints. This module may be imported by all.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import Protocol

from ster.text import one_line


class SterWarning(UserWarning):
    """Something that a person should know about a run that goes on all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run has come. Counts are of the whole run, not of one wave.

    Args:
        prompts_done: Prompts finished. A wave at work counts by the share of its blocks
            that have run.
        num_prompts: Prompts in all.
        layer: The block that was just finished; None where tokens are written one by
            one, through all blocks.
        num_layers: Blocks that the run goes through.
        tokens_done: Distinct tokens that are through all blocks, counted the same way;
            of answers, tokens that are written.
        num_tokens: Distinct tokens in all; of answers, the most that there can be.
        label: The words before the numbers: what is done, such as ``reading``, then
            what is counted, such as ``steered pair``; ``on`` may stand between them.
    """

    prompts_done: int
    num_prompts: int
    layer: int | None
    num_layers: int
    tokens_done: int
    num_tokens: int
    label: str = "extracting prompt"


class Reporter(Protocol):
    """Receives a run's notes, warnings and progress."""

    def note(self, sentence: str) -> None:
        """Take a fact that a run states once, like its chat template."""

    def warn(self, sentence: str) -> None:
        """Take a warning; ``sentence`` carries no ``warning: `` prefix."""

    def progress(self, progress: Progress) -> None:
        """Take how far the run has come."""


class QuietReporter:
    """The library's default: warnings become Python warnings, the rest is dropped."""

    def note(self, sentence: str) -> None:
        """Drop the note."""

    def warn(self, sentence: str) -> None:
        """Raise the sentence as a ``SterWarning`` at the caller's line."""
        depth, frame = 1, sys._getframe()
        while frame.f_back and frame.f_globals.get("__name__", "").startswith("ster."):
            depth, frame = depth + 1, frame.f_back
        warnings.warn(one_line(sentence), SterWarning, stacklevel=depth)

    def progress(self, progress: Progress) -> None:
        """Drop the progress."""
