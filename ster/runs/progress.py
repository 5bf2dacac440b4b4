"""How far a run has come, counted by the work that is done: blocks times tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ster.reporting import Progress
from ster.runs.plan import Plan
from ster.runs.session import Session


@dataclass(slots=True, kw_only=True)
class Whole:
    """Runs that follow one another and that a person waits for as one.

    Args:
        label: As for ``Progress``.
        num_prompts: Of all runs.
        num_tokens: Of all runs.
        prompts_done: Of the runs that are over.
        tokens_done: Of the runs that are over.
    """

    label: str
    num_prompts: int
    num_tokens: int
    prompts_done: int = 0
    tokens_done: int = 0

    @classmethod
    def of(cls, label: str, plans: Sequence[Plan]) -> Whole:
        """Count the work of all runs."""
        return cls(
            label=label,
            num_prompts=sum(map(_count_prompts, plans)),
            num_tokens=sum(each.num_tokens for each in plans),
        )

    def place(self, progress: Progress) -> Progress:
        """Say how far all runs have come, by how far the one at work has."""
        return replace(
            progress,
            label=self.label,
            prompts_done=self.prompts_done + progress.prompts_done,
            num_prompts=self.num_prompts,
            tokens_done=self.tokens_done + progress.tokens_done,
            num_tokens=self.num_tokens,
        )

    def finish(self, plan: Plan) -> None:
        """Count the run at work among those that are over."""
        self.prompts_done += _count_prompts(plan)
        self.tokens_done += plan.num_tokens


def report_block(
    session: Session,
    plan: Plan,
    number: int,
    layer: int,
    *,
    label: str,
    prompts_per_item: int = 1,
    whole: Whole | None = None,
) -> None:
    """Report a block of a wave; a wave at work counts by the share of blocks behind it.

    Args:
        session: Whose reporter is told.
        plan: The run.
        number: Of the wave.
        layer: The block that is done.
        label: As for ``Progress``.
        prompts_per_item: How many prompts count as one.
        whole: What the run is a part of, if it is; its label is the one that is told.
    """
    share, wave = (layer + 1) / plan.num_blocks, plan.waves[number]
    done = wave.start + int(len(wave) * share)
    tokens = sum(plan.wave_tokens[:number]) + int(plan.wave_tokens[number] * share)
    progress = Progress(
        label=label,
        prompts_done=done // prompts_per_item,
        num_prompts=_count_prompts(plan) // prompts_per_item,
        layer=layer,
        num_layers=plan.num_blocks,
        tokens_done=tokens,
        num_tokens=plan.num_tokens,
    )
    session.reporter.progress(progress if whole is None else whole.place(progress))


def _count_prompts(plan: Plan) -> int:
    return sum(map(len, plan.waves))
