"""Strengths to be measured, and what steering at them did."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ster.errors import (
    DirectionError,
    require_number,
    require_type,
    require_whole_number,
)
from ster.html import to_html
from ster.text import decimal
from ster.vectors.applying import ADDING, Applying
from ster.vectors.cards import describe_strengths, strength_card
from ster.vectors.strengths import Strength, Strengths, take_strengths

if TYPE_CHECKING:  # these load arrays, and the command line makes a trial before
    from ster.vectors.controls import ControlEffects
    from ster.vectors.effects import Effect
    from ster.vectors.side_rises import SideLengths, SideRises

RANDOM_DIRECTIONS = 10
# Each is scored at every strength and both signs; a few tell the spread of all.
MOST_RANDOM_DIRECTIONS = 1000
# In nats per token of neutral answers. SmolLM2's texts turn to the trait and stay whole
# up to 0.47; from 0.87 on they repeat themselves or fall apart.
MAX_DAMAGE = 0.5
# So few random directions may have an effect as large as that of a chosen strength.
MAX_CHANCE = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class StrengthTrial:
    """Which strengths are to be measured, and how.

    Args:
        strengths: In the order in which they are measured.
        batch_size: Responses that run together; None is as many as memory allows.
        max_sequence: Pairs with a side of more tokens are left out; None is none.
        random_directions: How many copies of the vector, turned at random, are measured
            beside it, 1000 at most; of 0 nothing is known of chance.
        max_damage: What a chosen strength may take, at most, of log p per token of
            neutral answers, in nats.
        applying: How the vector is applied, and to which tokens.

    Raises:
        DirectionError: There is no strength, one is not finite, a batch or sequence is
            empty, or a number below zero, or far too many directions are asked for.
        UsageError: A strength means nothing in this way of applying a vector.

    Example:
        >>> from ster import StrengthTrial
        >>> trial = StrengthTrial.of("-2,2,0.5n", batch_size=8, max_sequence=512)
        >>> trial.strengths[2].times(40.0)
        20.0
        >>> StrengthTrial.of([-2, 2, "0.5n"]).strengths == trial.strengths
        True
    """

    strengths: tuple[Strength, ...]
    batch_size: int | None = None
    max_sequence: int | None = None
    random_directions: int = RANDOM_DIRECTIONS
    max_damage: float = MAX_DAMAGE
    applying: Applying = ADDING

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if not self.strengths:
            raise DirectionError(
                "strength selection needs at least one strength to measure"
            )
        for each in self.strengths:
            require_type(each, Strength, "a strength")
            if not math.isfinite(each.value):
                sentence = "strength selection needs finite strengths, not "
                sentence += decimal(each.value)
                raise DirectionError(sentence, field="strengths", found=each)
            self.applying.check_tried(each)
        for name in ("batch_size", "max_sequence"):
            number = getattr(self, name)
            if number is not None and require_whole_number(number, name) < 1:
                words = "batch size" if name == "batch_size" else "maximum sequence"
                raise DirectionError(
                    f"strength selection requires {words} of at least one",
                    field=name,
                    found=number,
                )
        self._check_bounds()

    def _check_bounds(self) -> None:
        require_whole_number(self.random_directions, "random_directions")
        if self.random_directions > MOST_RANDOM_DIRECTIONS:
            raise DirectionError(
                f"random_directions must be at most {MOST_RANDOM_DIRECTIONS}",
                "ten tell what chance does",
                field="random_directions",
                found=self.random_directions,
                expected=MOST_RANDOM_DIRECTIONS,
            )
        # Reports say the bound, and JSON knows no numbers of numpy.
        damage = require_number(self.max_damage, "max_damage")
        object.__setattr__(self, "max_damage", damage)
        for name in ("random_directions", "max_damage"):
            # Written so that nan is refused.
            if not getattr(self, name) >= 0:
                raise DirectionError(
                    f"{name} must not be below zero",
                    field=name,
                    found=getattr(self, name),
                )

    @classmethod
    def of(
        cls,
        strengths: Strengths,
        *,
        batch_size: int | None = None,
        max_sequence: int | None = None,
        random_directions: int = RANDOM_DIRECTIONS,
        max_damage: float = MAX_DAMAGE,
        applying: Applying = ADDING,
    ) -> StrengthTrial:
        """Make a trial from strengths as a notebook has them.

        Args:
            strengths: A comma list as on a command line, or a list of numbers, of
                strings such as ``"0.5n"``, and of ``Strength`` values.
            batch_size: As for the class.
            max_sequence: As for the class.
            random_directions: As for the class.
            max_damage: As for the class.
            applying: As for the class.

        Raises:
            UsageError: One is no strength.
            DirectionError: As for the class.
        """
        return cls(
            strengths=take_strengths(strengths),
            batch_size=batch_size,
            max_sequence=max_sequence,
            random_directions=random_directions,
            max_damage=max_damage,
            applying=applying,
        )


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
    if share > 0.4:
        return "half of all random directions have"
    return f"1 random direction in {1 / share:.0f} has"
