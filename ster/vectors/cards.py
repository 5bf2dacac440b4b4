"""What vectors and measurements show of themselves in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from ster.html import MAX_ROWS, Card, Table
from ster.layers import name_layers
from ster.text import counted

if TYPE_CHECKING:
    from ster.vectors.confounds import Confound
    from ster.vectors.measured import MeasuredStrength, StrengthChoice
    from ster.vectors.selection import (
        Baseline,
        Candidate,
        Evaluation,
        LayerScore,
        Selection,
    )
    from ster.vectors.steering import SteeringVector

    Scored = TypeVar("Scored", Candidate, LayerScore)

# Metadata are free words, and may be many.
_MAX_METADATA = 5
_SCORES = ["accuracy", "95 % interval", "random (95th percentile)", "margin"]


def vector_card(vector: SteeringVector) -> Card:
    """Show where a vector comes from and how each layer did on its own pairs."""
    trained = any(vector.train_margin) or any(vector.train_accuracy)
    columns = [vector.layers, vector.norms().tolist()]
    header = ["layer", "norm"]
    if trained:
        columns += [vector.train_margin, vector.train_accuracy]
        header += ["train margin", "train accuracy"]
    rows = list(zip(*columns, strict=True))
    table = Table(
        header=header,
        rows=rows[:MAX_ROWS],
        num_rows=len(rows),
        noun="layer",
    )
    return Card(
        title=f"SteeringVector {vector.trait_name!r}",
        facts=[
            ("model", vector.model),
            ("revision", vector.model_revision),
            ("method", vector.method),
            ("hidden size", vector.hidden_size),
            ("precision", vector.precision),
            ("chat template", vector.chat_template),
            *[*vector.metadata.items()][:_MAX_METADATA],
        ],
        tables=[table],
    )


def describe_evaluation(evaluation: Evaluation) -> str:
    """Write an evaluation on one line."""
    vector, best = evaluation.vector, _best(evaluation.layers)
    parts = [
        repr(vector.trait_name),
        vector.method,
        counted(evaluation.num_pairs, "pair"),
        f"best of {counted(len(evaluation.layers), 'layer')}: {_short(best)}",
    ]
    if evaluation.strength is not None:
        parts.append(counted(len(evaluation.strength.candidates), "strength"))
    return f"Evaluation({', '.join(parts)})"


def evaluation_card(evaluation: Evaluation) -> Card:
    """Show how each layer orders pairs beside what random directions reach."""
    vector, best = evaluation.vector, _best(evaluation.layers)
    tables = [_ranking(evaluation.layers, best, "layer", "layer")]
    strength = evaluation.strength
    if strength is not None:
        tables.append(_strengths(strength))
    return Card(
        title=f"Evaluation of {vector.trait_name!r} on "
        f"{counted(evaluation.num_pairs, 'pair')}",
        facts=[
            ("model", vector.model),
            ("method", vector.method),
            ("chat template", evaluation.chat_template),
            ("best", _short(best)),
            ("orders as many", _join(evaluation.confounds)),
            ("applied", strength.applying.remark if strength else None),
        ],
        tables=tables,
    )


def describe_selection(selection: Selection) -> str:
    """Write a selection on one line."""
    best = selection.best
    return (
        f"Selection({selection.vector.trait_name!r}, best of "
        f"{counted(len(selection.candidates), 'candidate')}: {best.method}, "
        f"{_short(best, selection.random_best)}, {_held(selection)})"
    )


def selection_card(selection: Selection) -> Card:
    """Show the chosen candidate, and how it compares with others and with chance."""
    chance = selection.random_best
    return Card(
        title=f"Selection of {selection.vector.trait_name!r}: {selection.best.method}, "
        f"layer {selection.best.layer}, accuracy {selection.best.accuracy:.4g}",
        facts=[
            ("model", selection.vector.model),
            ("measured", _held(selection)),
            ("random directions at their best layer", _chance(chance)),
            ("orders as many", _join(selection.confounds)),
        ],
        tables=[
            _ranking(
                selection.candidates, selection.best, "candidate", "layer", "method"
            )
        ],
    )


def describe_strengths(choice: StrengthChoice) -> str:
    """Write measured strengths on one line."""
    best, strengths = choice.selected, counted(len(choice.candidates), "strength")
    pairs = counted(choice.num_scored, "pair")
    if best is None:
        return f"StrengthChoice(none of {strengths} holds up on {pairs})"
    return (
        f"StrengthChoice(best of {strengths}: {best.spelled}, effect "
        f"{best.effect.mean:.4g} on {pairs}, damage {best.damage:.4g})"
    )


def strength_card(choice: StrengthChoice) -> Card:
    """Show what each strength does."""
    return Card(
        title=f"Strengths of {choice.method}, {name_layers(choice.layers)}",
        facts=[
            ("pairs", f"{choice.num_scored} of {choice.num_pairs} scored"),
            ("applied", choice.applying.remark),
            ("n, the mean residual norm", float(choice.residual_norm)),
            *[("warning", doubt) for doubt in choice.doubts],
        ],
        tables=[_strengths(choice)],
    )


def _strengths(choice: StrengthChoice) -> Table:
    rows = _ranked(choice.candidates, MAX_ROWS)
    return Table(
        header=[
            "strength",
            "effect (nats)",
            "95 % interval",
            "damage",
            "random",
            "pairs ordered",
            "mean shift (nats)",
        ],
        rows=[_strength_row(each) for each in rows],
        num_rows=len(choice.candidates),
        noun="strength",
        remark=", none with a larger effect",
        marked=[index for index, each in enumerate(rows) if each.selected],
    )


def _strength_row(each: MeasuredStrength) -> list[object]:
    bounds = each.effect.interval
    return [
        each.strength_word or float(each.strength),
        each.effect.mean,
        f"{bounds[0]:+.2f} to {bounds[1]:+.2f}" if bounds else "-",
        each.damage,
        each.controls.rms if each.controls else "-",
        each.ordered,
        each.mean_shift,
    ]


def _ranking(scored: Sequence[Scored], best: Scored, noun: str, *names: str) -> Table:
    """Show the best few beside chance, behind what their attributes say they are."""
    rows = _shown(scored)
    return Table(
        header=[*names, *_SCORES],
        rows=[[getattr(each, name) for name in names] + _scores(each) for each in rows],
        num_rows=len(scored),
        noun=noun,
        remark=", none more accurate",
        marked=[rows.index(best)],
    )


def _ranked(
    candidates: Sequence[MeasuredStrength], number: int
) -> list[MeasuredStrength]:
    best = sorted(candidates, key=lambda each: (not each.selected, -each.effect.mean))
    kept = {id(each) for each in best[:number]}
    return [each for each in candidates if id(each) in kept]


def _shown(scored: Sequence[Scored]) -> list[Scored]:
    """Keep the best few, in their own order."""
    ranked = sorted(scored, key=lambda each: (each.accuracy, each.margin), reverse=True)
    kept = {id(each) for each in ranked[:MAX_ROWS]}
    return [each for each in scored if id(each) in kept]


def _best(scored: Sequence[Scored]) -> Scored:
    return max(scored, key=lambda each: (each.accuracy, each.margin))


def _scores(scored: Scored) -> list[object]:
    lower, upper = scored.interval
    chance = scored.random
    interval = f"{lower:.3f} to {upper:.3f}"
    reached = f"{chance.mean:.3f} ({chance.percentile_95:.3f})"
    return [scored.accuracy, interval, reached, scored.margin]


def _short(scored: Scored, chance: Baseline | None = None) -> str:
    """Name the best beside what it has to exceed: not the mean of random directions."""
    reached = (chance or scored.random).percentile_95
    where = " at its best layer" if chance else ""
    return (
        f"layer {scored.layer}, accuracy {scored.accuracy:.4g} (95th percentile of "
        f"random directions{where} {reached:.4g})"
    )


def _held(selection: Selection) -> str:
    return f"on {counted(selection.num_holdout, 'held-out pair')}"


def _join(confounds: Sequence[Confound]) -> str | None:
    return ", ".join(map(str, confounds)) or None


def _chance(chance: Baseline) -> str:
    return f"{chance.mean:.4g} on average, 95th percentile {chance.percentile_95:.4g}"
