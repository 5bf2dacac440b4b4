"""``ster vector optimize``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

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

    from ster.documents.pairs import PairSet
    from ster.runtime import Runtime
    from ster.vectors.effect_selection import EffectSelection, WeakDirectionError
    from ster.vectors.selection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Choosing:
    """How a direction is to be chosen; see ``Runtime.optimize``.

    Args:
        by: The rule.
        holdout: By accuracy, the share that is held out.
        strength: By effect, what candidates steer with.
        seed: By effect, what decides the parts.
        write_anyway: By effect, write what is not worth it.
        layers: What to choose from.
        tokens: What is read of each side.
        role: Whose turn it is.
        output: Where the artifact goes.
    """

    by: str
    holdout: float
    strength: str | None
    seed: int | None
    write_anyway: bool
    layers: str
    tokens: str
    role: str
    output: str

    def choose(self, runtime: Runtime, pairs: PairSet) -> EffectSelection | Selection:
        """Choose, and write the artifact.

        Raises:
            SterError: As for ``Runtime.optimize``.
        """
        if self.by == "accuracy":
            return runtime.optimize(
                pairs,
                by="accuracy",
                layers=self.layers,
                holdout=self.holdout,
                tokens=self.tokens,
                role=self.role,
                output=self.output,
            )
        return runtime.optimize(
            pairs,
            layers=self.layers,
            strength=self.strength,
            seed=self.seed,
            tokens=self.tokens,
            role=self.role,
            output=self.output,
            write_anyway=self.write_anyway,
        )


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
    from ster.workflows.choosing import HOLDOUT, check_holdout

    by = check_rule(by, holdout, strength, seed, write_anyway=write_anyway)
    share = HOLDOUT if holdout is None else holdout
    check_holdout(share)
    check_label(label, positive)
    flags.check_device()
    check_output(output_path, input_file(pairs_path))
    check_suffix(output_path)
    pairs = read_pairs(pairs_path, label, positive)
    how = Choosing(
        by=by,
        holdout=share,
        strength=strength,
        seed=seed,
        write_anyway=write_anyway,
        layers=layers,
        tokens=tokens,
        role=role,
        output=output_path,
    )
    return _answer(flags, pairs, how, text=text)


def _answer(
    flags: ModelFlags, pairs: PairSet, how: Choosing, *, text: bool | None
) -> Iterator[str]:
    """Load the model, choose, and show what was found."""
    from ster.vectors.effect_selection import WeakDirectionError
    from ster.workflows.choosing import split_pairs

    if how.by == "accuracy":
        split_pairs(len(pairs), how.holdout)  # refused before the model is loaded
    told: list[str] = []
    try:
        with flags.open(how.layers, how.output) as runtime:
            told.append(runtime.chat_template)
            found = how.choose(runtime, pairs)
    except WeakDirectionError as error:
        return _refuse(error, *told, text=text)
    report, table = _report(found, *told), partial(_draw, found)
    return show_beside(how.output, report, text=text, table=table)


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
    table = partial(draw_effects, found)
    try:
        yield from show(_report(found, template), text=text, table=table)
    except GeneratorExit:  # nobody reads on, and it is refused all the same
        raise error from None
    raise error
