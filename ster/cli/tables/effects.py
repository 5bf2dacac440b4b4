"""How candidates steered pairs that they were not fitted on, and which was chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ster.cli.tables.drawing import Column, Columns, plain, share
from ster.cli.tables.vectors import say_confounds, title
from ster.text import counted, decimal

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ster.vectors.effect_selection import EffectCandidate, EffectSelection

# Candidates that are shown; a document has all.
SHOWN = 10


def draw_effects(found: EffectSelection) -> Iterator[RenderableType]:
    """Show the best candidates beside chance; a warning or an error has the doubts."""
    from ster.vectors.effect_cards import rank_candidates
    from ster.vectors.trials import MAX_DAMAGE

    yield from title(found.vector)
    ranked = rank_candidates(found)
    shown = ranked[:SHOWN]
    yield Columns(columns=_columns(shown), marked=0)
    if len(ranked) > SHOWN:
        yield f"and {len(ranked) - SHOWN} more candidates, which --json prints"
    yield plain(
        f"* best by the lower bound of its effect: nats per pair at ± "
        f"{found.strength}, each of {counted(found.num_scored, 'pair')} steered by "
        "what was fitted on the half without it"
    )
    if any(each.effect is None for each in shown):
        yield plain(
            "-: not steered with, as it tells pairs apart no better than random "
            "directions and others do"
        )
    tied = sum(each.tied for each in ranked)
    if tied:
        which = "1 other effect" if tied == 1 else f"{tied} other effects"
        yield plain(f"{which} cannot be told from the best on these pairs (=)")
    yield plain(
        f"random directions there: the luckiest of {len(found.random_effects)} has "
        f"effect {found.luckiest:.3f}"
    )
    yield plain(
        "damage: what log p per token of neutral answers loses; the best is among "
        f"those up to {decimal(MAX_DAMAGE)}"
    )
    for sentence in found.advice:
        yield plain(sentence)
    yield from say_confounds(found.confounds)


def _columns(shown: Sequence[EffectCandidate]) -> list[Column]:
    marks = ["*" if e.selected else "=" if e.tied else " " for e in shown]
    reads = [each.reading for each in shown]
    random = [share(each.random.percentile_95) for each in reads]
    return [
        Column(name="", cells=marks),
        Column(name="layer", cells=[str(each.layer) for each in shown]),
        Column(name="method", cells=[each.method for each in shown], is_text=True),
        Column(name="effect", cells=[*map(_effect, shown)]),
        Column(name="95 % interval", cells=[*map(_interval, shown)], rank=2),
        Column(name="damage", cells=[*map(_damage, shown)], rank=1),
        Column(name="fold accuracy", cells=[share(e.accuracy) for e in reads], rank=3),
        Column(name="random", cells=random, rank=4),
    ]


def _effect(candidate: EffectCandidate) -> str:
    effect = candidate.effect
    if effect is None:
        return "-"
    error = effect.standard_error
    return f"{effect.mean:+.3f}" + ("" if error is None else f" ± {error:.3f}")


def _interval(candidate: EffectCandidate) -> str:
    if candidate.effect is None or candidate.effect.interval is None:
        return "-"
    low, high = candidate.effect.interval
    return f"{low:+.2f} to {high:+.2f}"


def _damage(candidate: EffectCandidate) -> str:
    return "-" if candidate.damage is None else f"{candidate.damage:.3f}"
