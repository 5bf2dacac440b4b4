"""Which strengths are to be measured, and what bounds a choice among them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ster.errors import (
    DirectionError,
    require_number,
    require_type,
    require_whole_number,
)
from ster.text import decimal
from ster.vectors.applying import ADDING, Applying
from ster.vectors.strengths import Strength, Strengths, take_strengths

RANDOM_DIRECTIONS = 10
# Each is scored at every strength and both signs; a few tell the spread of all.
MOST_RANDOM_DIRECTIONS = 1000
# In nats per token of neutral answers. SmolLM2's texts turn to the trait and stay whole
# up to 0.47; from 0.87 on they repeat themselves or fall apart.
MAX_DAMAGE = 0.5


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
