"""The result of ``optimize`` by measured effect, and its report."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ster.errors import DirectionError
from ster.html import to_html
from ster.text import counted, decimal
from ster.vectors.confounds import Confound
from ster.vectors.effect_cards import describe_effect_selection, effect_selection_card
from ster.vectors.effects import Effect
from ster.vectors.selection import Baseline
from ster.vectors.steering import SteeringVector
from ster.vectors.trials import MAX_DAMAGE

# Standard errors that an effect must lie above zero.
ERRORS_ABOVE_ZERO = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a candidate tells pairs apart that it was not fitted on.

    Args:
        accuracy: The share of pairs that it orders, each by the fit of other folds.
        interval: The 95 % confidence interval of the accuracy.
        margin: The mean of positive less negative score.
        random: The accuracy of random directions at this layer.
        random_margin: What 95 % of them stay below, whichever way they point.
    """

    accuracy: float
    interval: tuple[float, float]
    margin: float
    random: Baseline
    random_margin: float

    @property
    def beats_random(self) -> bool:
        """Whether it does what one random direction in twenty does, and clearly more.

        Where all pairs differ alike, random directions order all of them or none: then
        the margin tells.
        """
        accurate = self.accuracy >= max(self.random.percentile_95, 0.5)
        return accurate and self.margin > self.random_margin

    @property
    def document(self) -> dict[str, object]:
        """What the report says of it."""
        return {
            "beats_random": self.beats_random,
            "fold_accuracy": self.accuracy,
            "fold_accuracy_interval": list(self.interval),
            "fold_margin": self.margin,
            "random_accuracy": self.random.document,
            "random_margin": self.random_margin,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectCandidate:
    """A method at a layer, read on folds of the pairs and steered with on halves.

    Args:
        layer: The block whose output it reads and is added to.
        method: caa, logreg or pca-uncentred.
        reading: How it tells pairs apart.
        effect: On pairs that it was not fitted on; None where it was not steered with,
            because others beat random directions and this one did not.
        damage: What log p per token of neutral answers loses, at the worse sign.
        selected: This one is chosen.
        tied: Its effect cannot be told from that of the chosen one.
    """

    layer: int
    method: str
    reading: Reading
    effect: Effect | None = None
    damage: float | None = None
    selected: bool = False
    tied: bool = False

    @property
    def rank(self) -> float:
        """What candidates are ranked by: the lower bound of the effect's interval.

        The effect over its error would prefer layers where little varies and little
        happens. Where damage passes its bound, or where it was not steered with, the
        rank is minus infinity.
        """
        if self.effect is None or self.damage is None or self.damage > MAX_DAMAGE:
            return -math.inf
        return self.effect.lowest

    @property
    def document(self) -> dict[str, object]:
        """What the report says of it."""
        nothing = {
            "effect": None,
            "effect_interval": None,
            "effect_standard_error": None,
        }
        return {
            **self.reading.document,
            **(self.effect.document if self.effect else nothing),
            "damage": self.damage,
            "layer": self.layer,
            "method": self.method,
            "selected": self.selected,
            "tied": self.tied,
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EffectSelection:
    """The candidates of ``optimize`` by effect, and the vector of the best one.

    Args:
        vector: The best candidate, fitted again on all pairs.
        candidates: By layer, then caa, logreg, pca-uncentred.
        strength: What they were steered with, in norms of each layer: ``0.1n``.
        num_pairs: How many pairs there were.
        num_scored: How many of them were steered.
        num_folds: Parts of the first round; the second has two.
        seed: What decided the parts.
        random_effects: Of random directions of the same length where the best one is.
        advice: What would make the pairs better, if anything is seen.
        confounds: Trivial features of the sides that order the pairs at least as well
            as the best candidate does those of held-out folds.
    """

    vector: SteeringVector
    candidates: tuple[EffectCandidate, ...]
    strength: str
    num_pairs: int
    num_scored: int
    num_folds: int
    seed: int
    random_effects: tuple[float, ...]
    advice: tuple[str, ...] = ()
    confounds: tuple[Confound, ...] = ()

    def __repr__(self) -> str:
        """Show the chosen candidate, not all of them."""
        return describe_effect_selection(self)

    def _repr_html_(self) -> str:
        return to_html(effect_selection_card(self))

    @property
    def best(self) -> EffectCandidate:
        """The chosen candidate."""
        return next(each for each in self.candidates if each.selected)

    @property
    def effect(self) -> Effect:
        """The effect of the chosen candidate."""
        return next(
            each.effect
            for each in self.candidates
            if each.selected and each.effect is not None
        )

    @property
    def luckiest(self) -> float:
        """The largest effect of a random direction, whichever way it points."""
        return max(map(abs, self.random_effects))

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why the best direction should not be used; empty where it may be."""
        return tuple(self._doubts())

    def _doubts(self) -> Iterator[str]:
        where = f"{self.best.method} at layer {self.best.layer}"
        effect, error = self.effect.mean, self.effect.standard_error
        measured = f"{effect:+.3f} nats per pair"
        if self.best.damage is not None and self.best.damage > MAX_DAMAGE:
            yield (
                f"every candidate damages neutral answers by more than "
                f"{decimal(MAX_DAMAGE)} nats per token at {self.strength}"
            )
        if not effect:
            yield f"the best direction, {where}, steers neither way: {measured}"
            return
        if self.effect.is_negative:
            yield f"the best direction, {where}, steers the wrong way: {measured}"
            return
        if error is None or effect < ERRORS_ABOVE_ZERO * error:
            shown = "unknown" if error is None else f"{error:.3f}"
            yield (
                f"the effect of {where} on {counted(self.num_scored, 'pair')} is not "
                f"clearly above zero: {measured}, standard error {shown}"
            )
        if effect <= self.luckiest:
            yield (
                f"{where} steers no better than a random direction: {measured}, the "
                f"luckiest of {len(self.random_effects)} reaches {self.luckiest:.3f}"
            )

    @property
    def document(self) -> dict[str, object]:
        """What the report says of it."""
        squares = [each**2 for each in self.random_effects]
        return {
            "advice": list(self.advice),
            "by": "effect",
            "candidates": [each.document for each in self.candidates],
            "confounds": [each.document for each in self.confounds],
            "damage_bound": MAX_DAMAGE,
            "doubts": list(self.doubts),
            "folds": self.num_folds,
            "pairs": self.num_pairs,
            "scored_pairs": self.num_scored,
            "random_effect": {
                "directions": len(squares),
                "largest": self.luckiest,
                "root_mean_square": math.sqrt(math.fsum(squares) / len(squares)),
            },
            "seed": self.seed,
            "strength": self.strength,
        }


class WeakDirectionError(DirectionError):
    """The best direction is not worth writing down.

    Args:
        selection: What was found.
    """

    def __init__(self, selection: EffectSelection) -> None:
        self.selection = selection
        super().__init__(
            *selection.doubts,
            "nothing was written: --write-anyway, in Python write_anyway=True, writes "
            "it all the same",
            field="by",
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle it as what it is made of; a worker process hands it on like that."""
        return type(self), (self.selection,)
