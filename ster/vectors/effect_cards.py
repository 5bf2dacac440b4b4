"""What a choice by effect shows of itself in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ster.html import MAX_ROWS, Card, Table
from ster.text import counted

if TYPE_CHECKING:
    from ster.vectors.effect_selection import EffectCandidate, EffectSelection


def describe_effect_selection(selection: EffectSelection) -> str:
    """Write a choice by effect on one line."""
    best, doubts = selection.best, selection.doubts
    return (
        f"EffectSelection({selection.vector.trait_name!r}, best of "
        f"{counted(len(selection.candidates), 'candidate')}: {best.method}, layer "
        f"{best.layer}, effect {selection.effect.mean:+.4g} nats at "
        f"{selection.strength}{', doubtful' if doubts else ''})"
    )


def effect_selection_card(selection: EffectSelection) -> Card:
    """Show the chosen candidate, and how it compares with others and with chance."""
    best, shown = selection.best, rank_candidates(selection)[:MAX_ROWS]
    return Card(
        title=f"Selection of {selection.vector.trait_name!r}: {best.method}, layer "
        f"{best.layer}",
        facts=[
            ("model", selection.vector.model),
            ("measured", f"at ± {selection.strength} on {selection.num_scored} pairs"),
            ("luckiest random direction", f"{selection.luckiest:.4g} nats"),
            *(("doubt", doubt) for doubt in selection.doubts),
            ("orders as many", ", ".join(map(str, selection.confounds)) or None),
        ],
        tables=[
            Table(
                header=[
                    "layer",
                    "method",
                    "effect (nats)",
                    "standard error",
                    "damage",
                    "fold accuracy",
                ],
                rows=[_row(each) for each in shown],
                num_rows=len(selection.candidates),
                noun="candidate",
                remark=", none ranked higher",
                marked=[shown.index(best)],
            )
        ],
    )


def rank_candidates(selection: EffectSelection) -> list[EffectCandidate]:
    """Put the chosen one first, then those whose effect is at least largest."""
    return sorted(
        selection.candidates,
        key=lambda each: (not each.selected, -each.rank, -each.reading.accuracy),
    )


def _row(candidate: EffectCandidate) -> list[object]:
    effect = candidate.effect
    measured = (None, None) if effect is None else (effect.mean, effect.standard_error)
    return [
        candidate.layer,
        candidate.method,
        *("-" if each is None else f"{each:.4g}" for each in measured),
        "-" if candidate.damage is None else f"{candidate.damage:.3f}",
        candidate.reading.accuracy,
    ]
