"""What steering at strengths did, and which of them holds up."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ster.html import to_html
from ster.text import decimal
from ster.vectors.applying import ADDING, Applying
from ster.vectors.cards import describe_strengths, strength_card
from ster.vectors.trials import MAX_DAMAGE

if TYPE_CHECKING:  # these load arrays, and the command line makes a trial before
    from ster.vectors.controls import ControlEffects
    from ster.vectors.effects import Effect
    from ster.vectors.side_rises import SideLengths, SideRises

# So few random directions may have an effect as large as that of a chosen strength.
MAX_CHANCE = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStrength:
    """What steering at one strength does.

    Args:
        strength: The multiplier; of a strength in norms, its mean over the layers.
        ordered: The share of pairs whose positive side rose more.
        mean_shift: How much more, on average, in nats.
        effect: Half of the shift here less that of the opposite vector: what turns
            round with the vector.
        rises: What became of each side.
        damage: How much log p per token of neutral answers fell at this strength.
        slope: The mean effect per unit of strength, as the strength was given; None at
            0.
        controls: What turned copies of the vector do; None where none were measured.
        selected: This one is the best.
        strength_word: A strength in norms as it is spelled, such as ``0.5n``.
    """

    strength: float
    ordered: float
    mean_shift: float
    effect: Effect
    rises: SideRises
    damage: float
    slope: float | None = None
    controls: ControlEffects | None = None
    selected: bool = False
    strength_word: str | None = None

    @property
    def spelled(self) -> str:
        """How the strength was given."""
        return self.strength_word or decimal(self.strength)

    def objections(self, max_damage: float) -> Iterator[str]:
        """Say what speaks against choosing it; see ``choose``."""
        if not self.damage <= max_damage:
            yield (
                f"it takes {self.damage:.2f} nats per token of neutral answers "
                f"(at most {max_damage:g})"
            )
        if not self.effect.lowest > 0:
            yield f"its effect, {_interval(self.effect)}, does not lie above zero"
        if self.controls is not None and not self.controls.share <= MAX_CHANCE:
            yield (
                f"{_of_random(self.controls.share)} as large an effect "
                f"(at most 1 in {1 / MAX_CHANCE:.0f})"
            )

    @property
    def document(self) -> dict[str, object]:
        """What the report says of it; the word where there is one."""
        word = {"strength_word": self.strength_word} if self.strength_word else {}
        return {
            "damage": self.damage,
            **self.effect.document,
            "mean_shift": self.mean_shift,
            "ordered": self.ordered,
            "random": self.controls.document if self.controls else None,
            **self.rises.document,
            "selected": self.selected,
            "slope": self.slope,
            "strength": self.strength,
            **word,
        }


def choose(
    measured: Sequence[MeasuredStrength], max_damage: float
) -> tuple[MeasuredStrength, ...]:
    """Mark the strength whose effect is surely the largest, if there is one.

    It damages no more than it may, the interval of its effect lies above zero, and at
    most one random direction in 1000 does as well. Of those the one with the highest
    lower bound is chosen, of exact ties the earlier.

    Args:
        measured: In the order in which they were given.
        max_damage: In nats per token of neutral answers.
    """
    passing = [each for each in measured if not any(each.objections(max_damage))]
    best = max(passing, key=lambda each: each.effect.lowest, default=None)
    return tuple(replace(each, selected=each is best) for each in measured)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StrengthChoice:
    """The measured strengths, and the chosen one.

    Args:
        candidates: In the order in which they were given.
        layers: The vector's own layers, which are those that were steered unless
            ``applying`` names others.
        method: How their directions were fitted.
        num_pairs: All pairs.
        num_scored: Pairs that were short enough.
        forms: How the sides were encoded as responses, ``alone``, ``after prompt`` or
            ``after empty user turn``, and how many scored pairs in each way.
        residual_norms: What ``n`` stands for at each layer: the mean length of the
            residual stream over the rows that the vector was fitted on, or over these
            pairs if it carries none.
        lengths: Which sides are longer.
        max_damage: The bound of damage that was chosen within.
        applying: How the vector was applied, and to which tokens.
    """

    candidates: tuple[MeasuredStrength, ...]
    layers: tuple[int, ...]
    method: str
    num_pairs: int
    num_scored: int
    forms: Mapping[str, int]
    residual_norms: tuple[float, ...]
    lengths: SideLengths
    max_damage: float = MAX_DAMAGE
    applying: Applying = ADDING

    @property
    def residual_norm(self) -> float:
        """The mean of the layers' norms."""
        return math.fsum(self.residual_norms) / len(self.residual_norms)

    def __repr__(self) -> str:
        """Show the chosen strength, not all of them."""
        return describe_strengths(self)

    def _repr_html_(self) -> str:
        return to_html(strength_card(self))

    @property
    def selected(self) -> MeasuredStrength | None:
        """The chosen strength; None where none holds up."""
        return next((each for each in self.candidates if each.selected), None)

    @property
    def doubts(self) -> Iterator[str]:
        """Say what a person should know before using any of it."""
        if self.lengths.doubt:
            yield self.lengths.doubt
        if self.selected is None:
            yield f"no strength is chosen: {self._nearest()}"

    def _nearest(self) -> str:
        """Say why not even the strength nearest to being chosen is."""
        steering = [each for each in self.candidates if each.strength]
        if not steering:
            return "at 0 nothing is steered"
        if self.applying.is_even:
            return (
                f"{self.applying.how} does the same with the vector and its opposite, "
                "so nothing turns round with it: see mean shift and damage"
            )
        nearest = min(
            steering,
            key=lambda each: (
                len([*each.objections(self.max_damage)]),
                -each.effect.mean,
            ),
        )
        reasons = "; ".join(nearest.objections(self.max_damage))
        return f"the nearest is {nearest.spelled}, but {reasons}"

    @property
    def document(self) -> dict[str, object]:
        """What the report says of it. Forms are counted where there are several."""
        counts = {"response_form_counts": dict(self.forms)}
        best = self.selected
        word = best.strength_word if best else None
        return {
            "candidates": [each.document for each in self.candidates],
            **self.applying.entry,
            "layers": list(self.layers),
            # JSON knows no infinity.
            "max_damage": self.max_damage if math.isfinite(self.max_damage) else None,
            "method": self.method,
            "pairs": self.num_pairs,
            "residual_norm": self.residual_norm,
            "residual_norms": list(self.residual_norms),
            **(counts if len(self.forms) > 1 else {}),
            "response_forms": list(self.forms),
            "scored_pairs": self.num_scored,
            "selected_strength": best.strength if best else None,
            **({"selected_strength_word": word} if word else {}),
            "side_tokens": self.lengths.document,
            "skipped_long": self.num_pairs - self.num_scored,
        }


def _interval(effect: Effect) -> str:
    if effect.interval is None:
        return f"{effect.mean:+.2f} in a single pair"
    lower, upper = effect.interval
    return f"{effect.mean:+.2f} (95 % interval {lower:+.2f} to {upper:+.2f})"


def _of_random(share: float) -> str:
    if share > 0.1:
        return f"{share:.0%} of random directions have"
    return f"1 random direction in {1 / share:.0f} has"
