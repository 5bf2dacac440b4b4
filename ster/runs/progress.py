"""How far a run has come, counted by the work that is done: blocks times tokens."""

from __future__ import annotations

from ster.reporting import Progress
from ster.runs.plan import Plan
from ster.runs.session import Session


def report_block(
    session: Session,
    plan: Plan,
    number: int,
    layer: int,
    *,
    label: str,
    prompts_per_item: int = 1,
) -> None:
    """Report a block of a wave; a wave at work counts by the share of blocks behind it.

    Args:
        session: Whose reporter is told.
        plan: The run.
        number: Of the wave.
        layer: The block that is done.
        label: As for ``Progress``.
        prompts_per_item: How many prompts count as one.
    """
    share, wave = (layer + 1) / plan.num_blocks, plan.waves[number]
    done = wave.start + int(len(wave) * share)
    tokens = sum(plan.wave_tokens[:number]) + int(plan.wave_tokens[number] * share)
    session.reporter.progress(
        Progress(
            label=label,
            prompts_done=done // prompts_per_item,
            num_prompts=sum(map(len, plan.waves)) // prompts_per_item,
            layer=layer,
            num_layers=plan.num_blocks,
            tokens_done=tokens,
            num_tokens=plan.num_tokens,
        )
    )
