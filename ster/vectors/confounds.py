"""Trivial features of pairs that tell their sides apart as well as a direction does.

Answers "(A)" and "(B)" with nine positive ones out of ten "(A)" are ordered by a
direction that knows the letter and nothing of the trait.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from ster.documents.pair_sets.separability import Rule, Side, find_rules
from ster.text import quoted

# A feature counts if chance makes it as telling less often. Four are looked at, so one
# set in twenty may warn for nothing, and none of seven pairs or fewer.
UNLIKELY = 0.01
# Accuracies are those of float32.
_ROUNDING = 1e-6
_THINGS = {
    "first": "the first token",
    "last": "the last token",
    "difference": "the first token that differs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Confound:
    """A trivial feature that orders pairs at least as well as a direction.

    Args:
        feature: ``length`` in tokens, the ``first`` or ``last`` token, or
            ``difference``: the first token that the sides do not share.
        share: Of the measured pairs that it orders, where one that it cannot order
            counts half.
        favours: What makes a side positive: ``longer`` or ``shorter``, or the text of
            the token that speaks most often for it; None where no single one does.
    """

    feature: str
    share: float
    favours: str | None

    def __str__(self) -> str:
        """Name the feature, what it favours and its share."""
        if self.feature == "length":
            return f"length (the {self.favours} side is positive: {self.share:.0%})"
        most = "" if self.favours is None else f"as {quoted(self.favours)}: "
        return f"{_THINGS[self.feature]} ({most}{self.share:.0%})"

    @property
    def document(self) -> dict[str, object]:
        """What a report says of it."""
        return {
            "favours": self.favours,
            "feature": self.feature,
            "share": self.share,
        }


def find_confounds(
    sides: Sequence[Side],
    accuracy: float,
    *,
    measured: Sequence[int] | None = None,
    spell: Callable[[Hashable], str] = str,
) -> tuple[Confound, ...]:
    """Find the trivial features that order pairs at least as well as a direction.

    A feature is learnt from all pairs, each pair's own order from the others, and is
    compared on the pairs that the direction was measured on. One that chance could make
    as one-sided is none, so a few pairs warn of nothing.

    Args:
        sides: The tokens of each text, positive and negative ones in turn.
        accuracy: The share of the measured pairs that the direction orders.
        measured: The indices of these pairs; all unless given.
        spell: Says what a token stands for.

    Raises:
        DocumentError: There are no pairs.
    """
    rules = find_rules(sides[0::2], sides[1::2]).values()
    pairs = range(len(sides) // 2) if measured is None else measured
    return tuple(
        Confound(
            feature=rule.feature,
            share=rule.share_of(pairs),
            favours=_spell(rule, spell),
        )
        for rule in rules
        if rule.chance < UNLIKELY and rule.share_of(pairs) >= accuracy - _ROUNDING
    )


def warn_of(confounds: Sequence[Confound], accuracy: float) -> str:
    """Say which features do as well as a direction, and what to do about it."""
    verb = "tells" if len(confounds) == 1 else "tell"
    return (
        f"{', '.join(map(str, confounds))} {verb} the sides of these pairs apart as "
        f"well as the best direction, which orders {accuracy:.0%}: it may have found "
        "that alone; balance the sides in it, see `ster pairs inspect` and "
        "docs/pairs.md"
    )


def _spell(rule: Rule, spell: Callable[[Hashable], str]) -> str | None:
    if rule.favours is None:
        return None
    return str(rule.favours) if rule.feature == "length" else spell(rule.favours)
