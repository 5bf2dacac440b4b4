"""What tells the sides of pairs apart without reading them: trivial rules.

A direction that does no better than one of these may have found the rule and no trait.
Sides are sequences of anything that can be counted: characters, words, token ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import mean

from ster.documents.pair_sets.sign_test import sign_test
from ster.errors import DocumentError
from ster.text import counted

Side = Sequence[Hashable]
# "difference" is the first thing that the sides do not share: of answers (A) and (B)
# the letter, wherever it stands.
FEATURES = ("length", "first", "last", "difference")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How well one trivial feature tells positive sides from negative ones.

    Args:
        feature: One of ``FEATURES``.
        share: Of the pairs that the rule orders rightly, where one that it cannot order
            counts half: 0.5 is chance, 1 tells all apart.
        favours: What makes a side positive: ``longer`` or ``shorter``, or the thing
            that speaks most often for it; None where nothing does.
        ordered: By pair, 1 where the rule orders it rightly, 0 where it does wrongly
            and 0.5 where it cannot; their mean is the share.
        chance: How likely chance alone parts the sides as well: a sign test of the
            pairs that the others alone order rightly and wrongly.
    """

    feature: str
    share: float
    favours: Hashable
    ordered: tuple[float, ...] = field(repr=False)
    chance: float

    def share_of(self, pairs: Iterable[int]) -> float:
        """Return the share of some pairs, by their indices."""
        return mean(self.ordered[index] for index in pairs)


def find_rules(positives: Sequence[Side], negatives: Sequence[Side]) -> dict[str, Rule]:
    """Measure every trivial rule on pairs of sequences.

    By length the longer sides, or else the shorter ones, are positive. By their first
    thing, their last, or the first that differs, a side is positive if other pairs have
    that thing more often on their positive side. A pair is ordered only if the rule
    says the same with and without that pair, so what occurs once orders nothing.

    Args:
        positives: The positive side of each pair.
        negatives: The negative side of each pair, as many.

    Returns:
        A rule for each of ``FEATURES``.

    Raises:
        DocumentError: There are no pairs, or not as many sides of both kinds.
    """
    if not positives or len(positives) != len(negatives):
        raise DocumentError(
            f"{counted(len(positives), 'positive side')} and "
            f"{counted(len(negatives), 'negative side')} are no pairs"
        )
    pairs = list(zip(positives, negatives, strict=True))
    return {
        "length": _by_length(pairs),
        "first": _by_thing("first", [(_at(a, 0), _at(b, 0)) for a, b in pairs]),
        "last": _by_thing("last", [(_at(a, -1), _at(b, -1)) for a, b in pairs]),
        "difference": _by_thing("difference", [_first_difference(*p) for p in pairs]),
    }


def first_difference(positive: Side, negative: Side) -> int | None:
    """Return the index at which two sequences first differ; None if they are equal."""
    for index, (a, b) in enumerate(zip(positive, negative, strict=False)):
        if a != b:
            return index
    same_length = len(positive) == len(negative)
    return None if same_length else min(len(positive), len(negative))


def _by_length(pairs: Sequence[tuple[Side, Side]]) -> Rule:
    by_longer = [_order(len(a) - len(b)) for a, b in pairs]
    longer = mean(by_longer)
    chance = sign_test(by_longer.count(1.0), by_longer.count(0.0))
    ordered = by_longer if longer >= 0.5 else [1 - each for each in by_longer]
    return Rule(
        feature="length",
        share=mean(ordered),
        favours=None if longer == 0.5 else "longer" if longer > 0.5 else "shorter",
        ordered=tuple(ordered),
        chance=chance,
    )


def _by_thing(
    feature: str, pairs: Sequence[tuple[Hashable | None, Hashable | None]]
) -> Rule:
    """Order pairs by which of two things is more often on positive sides."""
    leaning: Counter[Hashable | None] = Counter()
    for positive, negative in pairs:
        leaning[positive] += 1
        leaning[negative] -= 1
    ordered, by_others = [], []
    for positive, negative in pairs:
        margin = leaning[positive] - leaning[negative]
        # Without this pair the positive's thing has one less, the negative's one more.
        others = 0 if positive == negative else margin - 2
        ordered.append(0.5 if positive == negative else _agree(margin, others))
        by_others.append(_order(others))
    right, wrong = by_others.count(1.0), by_others.count(0.0)
    best = max(leaning, key=leaning.__getitem__)
    return Rule(
        feature=feature,
        share=mean(ordered),
        favours=best if leaning[best] > 1 else None,
        ordered=tuple(ordered),
        # Others that are wrong more often, as of balanced letters, tell nothing.
        chance=sign_test(right, wrong) if right > wrong else 1.0,
    )


def _agree(margin: int, without: int) -> float:
    """Count what both margins say; they are a half where they say different things."""
    with_pair, without_pair = _order(margin), _order(without)
    return with_pair if with_pair == without_pair else 0.5


def _order(margin: int) -> float:
    return 0.5 if margin == 0 else float(margin > 0)


def _at(side: Side, index: int) -> Hashable | None:
    return side[index] if len(side) else None


def _first_difference(
    positive: Side, negative: Side
) -> tuple[Hashable | None, Hashable | None]:
    index = first_difference(positive, negative)
    if index is None:
        return None, None
    return (
        positive[index] if index < len(positive) else None,
        negative[index] if index < len(negative) else None,
    )
