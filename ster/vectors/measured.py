"""Strengths to be measured, and what steering at them did."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ster.errors import DirectionError, require_type, require_whole_number
from ster.html import to_html
from ster.text import decimal
from ster.vectors.applying import ADDING, Applying
from ster.vectors.cards import describe_strengths, strength_card
from ster.vectors.strengths import Strength, Strengths, take_strengths


@dataclass(frozen=True, slots=True, kw_only=True)
class StrengthTrial:
    """Which strengths are to be measured, and how.

    Args:
        strengths: In the order in which they are measured.
        batch_size: Responses that run together; None is as many as memory allows.
        max_sequence: Pairs with a side of more tokens are left out; None is none.
        applying: How the vector is applied, and to which tokens.

    Raises:
        DirectionError: There is no strength, one is not finite, or a batch or sequence
            is empty.
        UsageError: A strength means nothing this way.

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
            self.applying.check(each)
        for name in ("batch_size", "max_sequence"):
            number = getattr(self, name)
            if number is not None and require_whole_number(number, name) < 1:
                words = "batch size" if name == "batch_size" else "maximum sequence"
                raise DirectionError(
                    f"strength selection requires {words} of at least one",
                    field=name,
                    found=number,
                )

    @classmethod
    def of(
        cls,
        strengths: Strengths,
        *,
        batch_size: int | None = None,
        max_sequence: int | None = None,
        applying: Applying = ADDING,
    ) -> StrengthTrial:
        """Make a trial from strengths as a notebook has them.

        Args:
            strengths: A comma list as on a command line, or a list of numbers, of
                strings such as ``"0.5n"``, and of ``Strength`` values.
            batch_size: As for the class.
            max_sequence: As for the class.
            applying: As for the class.

        Raises:
            UsageError: One is no strength.
            DirectionError: As for the class.
        """
        return cls(
            strengths=take_strengths(strengths),
            batch_size=batch_size,
            max_sequence=max_sequence,
            applying=applying,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStrength:
    """What steering at one strength does.

    Args:
        strength: The multiplier; of a strength in norms, its mean over the layers.
        ordered: The share of pairs whose positive side rose more.
        mean_shift: How much more, on average, in nats.
        selected: This one is the best.
        strength_word: A strength in norms as it is spelled, such as ``0.5n``.
    """

    strength: float
    ordered: float
    mean_shift: float
    selected: bool = False
    strength_word: str | None = None

    @property
    def document(self) -> dict[str, object]:
        """What the report says of it; the word where there is one."""
        word = {"strength_word": self.strength_word} if self.strength_word else {}
        return {
            "mean_shift": self.mean_shift,
            "ordered": self.ordered,
            "selected": self.selected,
            "strength": self.strength,
            **word,
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StrengthChoice:
    """The measured strengths, and the chosen one.

    Args:
        candidates: In the order in which they were given.
        layers: The layers that were steered.
        method: How their directions were fitted.
        num_pairs: All pairs.
        num_scored: Pairs that were short enough.
        forms: How the sides were encoded as responses, ``alone``, ``after prompt`` or
            ``after empty user turn``, and how many scored pairs in each way.
        residual_norms: What ``n`` stands for at each layer: the mean length of the
            residual stream over the rows that the vector was fitted on, or over these
            pairs if it carries none.
    """

    candidates: tuple[MeasuredStrength, ...]
    layers: tuple[int, ...]
    method: str
    num_pairs: int
    num_scored: int
    forms: Mapping[str, int]
    residual_norms: tuple[float, ...]

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
    def selected(self) -> MeasuredStrength:
        """The chosen strength."""
        return next(each for each in self.candidates if each.selected)

    @property
    def document(self) -> dict[str, object]:
        """What the report says of it. Forms are counted where there are several."""
        counts = {"response_form_counts": dict(self.forms)}
        word = self.selected.strength_word
        return {
            "candidates": [each.document for each in self.candidates],
            "layers": list(self.layers),
            "method": self.method,
            "pairs": self.num_pairs,
            "residual_norm": self.residual_norm,
            "residual_norms": list(self.residual_norms),
            **(counts if len(self.forms) > 1 else {}),
            "response_forms": list(self.forms),
            "scored_pairs": self.num_scored,
            "selected_strength": self.selected.strength,
            **({"selected_strength_word": word} if word else {}),
            "skipped_long": self.num_pairs - self.num_scored,
        }
