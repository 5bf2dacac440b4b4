"""The grammar of strengths. Loads no arrays, so the command line can check words.

A strength is a number, or one followed by ``n``: at each layer that is steered, so many
times the mean length of the residual stream there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from ster.errors import DirectionError, UsageError, require_number
from ster.text import decimal, quoted, trim

# Numbers from here on round to an infinite f32.
_TOO_LARGE = 2.0**128 - 2.0**103


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """How much of a vector is added.

    Args:
        value: The multiplier.
        of_norm: The value is counted in each layer's own mean residual norm.
    """

    value: float
    of_norm: bool = False

    def times(self, residual_norm: float) -> float:
        """Return the multiplier of the vector."""
        return self.value * residual_norm if self.of_norm else self.value

    @property
    def word(self) -> str | None:
        """How it is spelled if it counts in norms, which no number says."""
        return str(self) if self.of_norm else None

    def __str__(self) -> str:
        """Spell it as it is read again."""
        return f"{decimal(self.value)}{'n' * self.of_norm}"

    def __mul__(self, other: Strength) -> Strength:
        """Multiply one strength by another.

        Raises:
            UsageError: Both count in norms.
        """
        if self.of_norm and other.of_norm:
            raise UsageError(
                f"{other} of a vector at {self} would count in residual norms twice",
                "one of them must be a number",
                field="strength",
                found=str(other),
            )
        return Strength(
            value=self.value * other.value, of_norm=self.of_norm or other.of_norm
        )


def parse_strengths(text: str) -> tuple[Strength, ...]:
    """Read a comma list of strengths, such as ``-4,0,2.5`` or ``-0.5n,0.5n``.

    Raises:
        UsageError: One is no number.
    """
    if not trim(text):
        return ()
    return tuple(_parse(trim(word)) for word in text.split(","))


StrengthLike = str | float | Strength
Strengths = StrengthLike | Iterable[StrengthLike]


def take_strength(strength: StrengthLike) -> Strength:
    """Take one strength as a notebook has it: a number, or a string such as "0.05n".

    Raises:
        UsageError: It is no strength.
        DirectionError: It is not finite.
    """
    taken = _take(strength)
    if not math.isfinite(taken.value):
        sentence = f"a strength must be finite, not {decimal(taken.value)}"
        raise DirectionError(sentence, field="strength", found=strength)
    return taken


def take_share(strength: StrengthLike) -> Strength:
    """Take a strength that is a positive share of each layer's norm.

    Raises:
        UsageError: It counts in something else, or is not positive.
    """
    taken = take_strength(strength)
    if not taken.of_norm or not taken.value > 0:
        raise UsageError(
            f"candidates are steered by a share of each layer's norm, such as 0.1n, "
            f"not {taken}",
            field="strength",
            found=strength,
            expected="a positive number followed by n",
        )
    return taken


def take_strengths(strengths: Strengths) -> tuple[Strength, ...]:
    """Take strengths as a notebook has them; see ``StrengthTrial.of``.

    Raises:
        UsageError: One is no strength, or the collection has no order.
    """
    if isinstance(strengths, str):
        return parse_strengths(strengths)
    if isinstance(strengths, Mapping | Set | bytes):
        raise UsageError(
            f"strengths must be a list of numbers, not {type(strengths).__name__}",
            field="strengths",
            found=strengths,
        )
    given: Any = strengths
    if getattr(given, "ndim", 1) == 0:
        given = given[()]  # a numpy array without dimensions is one number
    return tuple(map(_take, given if isinstance(given, Iterable) else [given]))


def take_multipliers(strengths: Strengths, field: str) -> tuple[Strength, ...]:
    """Take strengths that can be answered at: finite, and at least one.

    Args:
        strengths: As for ``StrengthTrial.of``.
        field: What they were given as.

    Raises:
        UsageError: There is none, or one is no strength.
        DirectionError: One is not finite.
    """
    taken = take_strengths(strengths)
    if not taken:
        raise UsageError("there is no strength to answer at", field=field)
    return tuple(map(take_strength, taken))


def _take(strength: object) -> Strength:
    if isinstance(strength, Strength):
        return strength
    if isinstance(strength, str):
        return _parse(trim(strength))
    return Strength(value=_in_range(require_number(strength, "a strength")))


def _parse(word: str) -> Strength:
    number = _number(word)
    if number is not None:
        return Strength(value=number)
    number = _number(word.removesuffix("n"))
    if number is None:
        raise UsageError(
            f"invalid strength {quoted(word)}; expected a number, or one followed by n",
            field="strength",
            found=word,
        )
    return Strength(value=number, of_norm=True)


def _number(word: str) -> float | None:
    try:
        number = float(word)
    except ValueError:
        return None
    if "_" in word or not word.isascii():
        return None
    return _in_range(number)


def _in_range(number: float) -> float:
    return math.copysign(math.inf, number) if abs(number) >= _TOO_LARGE else number
