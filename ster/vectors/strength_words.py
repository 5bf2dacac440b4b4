"""The ``--strengths`` grammar. Light, so that the command line can ask.

A strength is a number, or one followed by ``n``: so many times the mean length of the
residual stream at the layers that are steered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ster.errors import DirectionError, UsageError
from ster.text import decimal, quoted, trim

# From here on the nearest f32 is infinite: halfway past the largest.
_TOO_LARGE = 2.0**128 - 2.0**103


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """How much of a vector is added.

    Args:
        value: The multiplier.
        of_norm: It multiplies the residual norm too.
    """

    value: float
    of_norm: bool = False

    def times(self, residual_norm: float) -> float:
        """Return the multiplier of the vector."""
        return self.value * residual_norm if self.of_norm else self.value


def parse_strengths(text: str) -> tuple[Strength, ...]:
    """Read a comma list of strengths, such as ``-4,0,2.5`` or ``-0.5n,0.5n``.

    Raises:
        UsageError: One is no number.
    """
    if not trim(text):
        return ()
    return tuple(_parse(trim(word)) for word in text.split(","))


@dataclass(frozen=True, slots=True, kw_only=True)
class StrengthTrial:
    """Which strengths are to be measured, and how.

    Args:
        strengths: In the order in which they are measured.
        batch_size: Responses that run together.
        max_sequence: Pairs with a side of more tokens are left out.

    Raises:
        DirectionError: There is no strength, one is not finite, or a batch or sequence
            is empty.

    Example:
        >>> trial = StrengthTrial.of("-2,2,0.5n", batch_size=8, max_sequence=512)
        >>> trial.strengths[2].times(40.0)
        20.0
    """

    strengths: tuple[Strength, ...]
    batch_size: int
    max_sequence: int

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if not self.strengths:
            raise DirectionError(
                "strength selection needs at least one strength to measure"
            )
        for each in self.strengths:
            if not math.isfinite(each.value):
                raise DirectionError(
                    "strength selection needs finite strengths, not "
                    f"{decimal(each.value)}"
                )
        if self.batch_size < 1:
            raise DirectionError(
                "strength selection requires batch size of at least one"
            )
        if self.max_sequence < 1:
            raise DirectionError(
                "strength selection requires maximum sequence of at least one"
            )

    @classmethod
    def of(cls, text: str, *, batch_size: int, max_sequence: int) -> StrengthTrial:
        """Read the strengths as they stand on a command line."""
        strengths = parse_strengths(text)
        return cls(
            strengths=strengths, batch_size=batch_size, max_sequence=max_sequence
        )


def _parse(word: str) -> Strength:
    number = _number(word)
    if number is not None:
        return Strength(value=number)
    number = _number(word.removesuffix("n"))
    if number is None:
        raise UsageError(
            f"invalid strength {quoted(word)}; expected a number, or one followed by n"
        )
    return Strength(value=number, of_norm=True)


def _number(word: str) -> float | None:
    try:
        number = float(word)
    except ValueError:
        return None
    if "_" in word or not word.isascii():
        return None
    return math.copysign(math.inf, number) if abs(number) >= _TOO_LARGE else number
