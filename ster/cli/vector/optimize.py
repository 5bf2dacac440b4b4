"""``ster vector optimize``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from ster.cli.answer import show, show_beside
from ster.cli.inputs import input_file
from ster.cli.model import ModelFlags, check_output, with_model_flags
from ster.cli.options import Layers, SideRole, SideTokens, Text
from ster.cli.pairs.options import Label, PositiveValue, check_label, read_pairs
from ster.cli.tables.effects import draw_effects
from ster.cli.tables.selections import draw_selection
from ster.cli.vector.options import (
    Output,
    Pairs,
    PartSeed,
    RankedHoldout,
    Rule,
    Share,
    WriteAnyway,
)
from ster.vectors.rules import check_rule

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ster.vectors.effect_selection import EffectSelection, WeakDirectionError
    from ster.vectors.selection import Selection


class Given(TypedDict):
    """What both ways of choosing are told."""

    layers: str
    tokens: str
    role: str
    output: str


@with_model_flags
def optimize(
    *,
    pairs_path: Pairs,
    output_path: Output,
    flags: ModelFlags,
    by: Rule = None,
    label: Label = None,
    positive: PositiveValue = None,
    layers: Layers = "all",
    holdout: RankedHoldout = None,
    strength: Share = None,
    seed: PartSeed = None,
    tokens: SideTokens = "last",
    role: SideRole = "user",
    write_anyway: WriteAnyway = False,
    text: Text = None,
) -> Iterator[str]:
    """Choose method and layer by what steering does to pairs that were not fitted on.

    Fits the best candidate again on all pairs, writes it as a steering artifact, and
    prints what it holds and how every candidate did, beside random directions. A
    direction that steers no better than they do is not written.
    """
    from ster.documents.steering import check_suffix
    from ster.vectors.effect_selection import WeakDirectionError
    from ster.workflows.choosing import HOLDOUT, check_holdout, split_pairs

    by = check_rule(by, holdout, strength, seed, write_anyway=write_anyway)
    share = HOLDOUT if holdout is None else holdout
    check_holdout(share)
    check_label(label, positive)
    flags.check_device()
    check_output(output_path, input_file(pairs_path))
    check_suffix(output_path)
    pairs = read_pairs(pairs_path, label, positive)
    if by == "accuracy":
        split_pairs(len(pairs), share)
    given = Given(layers=layers, tokens=tokens, role=role, output=output_path)
    told: list[str] = []
    found: EffectSelection | Selection
    try:
        with flags.open(layers, output_path) as runtime:
            told.append(runtime.chat_template)
            if by == "accuracy":
                found = runtime.optimize(pairs, by="accuracy", holdout=share, **given)
            else:
                found = runtime.optimize(
                    pairs,
                    strength=strength,
                    seed=seed,
                    write_anyway=write_anyway,
                    **given,
                )
    except WeakDirectionError as error:
        return _refuse(error, *told, text=text)
    report, table = _report(found, *told), partial(_draw, found)
    return show_beside(output_path, report, text=text, table=table)


def _report(found: EffectSelection | Selection, template: str) -> dict[str, object]:
    return {
        "artifact": found.vector.summary,
        "chat_template": template,
        "selection": found.document,
    }


def _draw(found: EffectSelection | Selection) -> Iterator[RenderableType]:
    from ster.vectors.selection import Selection

    if isinstance(found, Selection):
        return draw_selection(found)
    return draw_effects(found)


def _refuse(
    error: WeakDirectionError, template: str, *, text: bool | None
) -> Iterator[str]:
    """Show what was measured, then refuse."""
    found = error.selection
    report, table = _report(found, template), partial(draw_effects, found)
    yield from show(report, text=text, table=table)
    raise error
