"""What a pair set is like: repeats, lengths, and what tells its sides apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from ster.documents.pair_sets.lengths import Lengths
from ster.documents.pair_sets.separability import Rule, find_rules, first_difference
from ster.documents.pairs import PairSet
from ster.html import Card, Table, to_html
from ster.text import counted, one_line, quoted

# Rules from here on are warned of, and lengths that chance explains less often.
TELLING_SHARE = 0.8
UNLIKELY = 0.01
_FEW_PAIRS = 5
_MOST_FREQUENT = 5

Spell = Callable[[Hashable], str]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PairInspection:
    """What a pair set is like.

    Args:
        trait_name: Of the set.
        num_pairs: Pairs in all.
        repeats: Pairs and texts that are there more than once, by kind.
        lengths: Of the sides.
        differs_at: In how many pairs the sides first differ at the ``first`` word or
            token, in the ``middle``, at the ``last``, or ``never``.
        ends: By ``first`` and ``last``, the most frequent words or tokens there, with
            their number on positive and on negative sides.
        prompts: How many pairs have none, how many different there are, and how often
            the most frequent is used.
        rules: What trivially tells the sides apart; see ``find_rules``.
        unit: What rules and ends are about: words or tokens.
    """

    trait_name: str
    num_pairs: int
    repeats: dict[str, int]
    lengths: Lengths
    differs_at: dict[str, int]
    ends: dict[str, list[tuple[str, int, int]]]
    prompts: dict[str, int]
    rules: dict[str, Rule]
    unit: str

    @property
    def document(self) -> dict[str, object]:
        """The inspection as a document."""
        return {
            "trait_name": self.trait_name,
            "pairs": self.num_pairs,
            "repeats": self.repeats,
            "lengths": self.lengths.document,
            "differs_at": self.differs_at,
            "ends": {
                end: [
                    {"text": text, "positive": positive, "negative": negative}
                    for text, positive, negative in counts
                ]
                for end, counts in self.ends.items()
            },
            "prompts": self.prompts,
            "separability": {
                name: {"share": rule.share, "favours": rule.favours}
                for name, rule in self.rules.items()
            },
            "unit": self.unit,
            "warnings": self.warnings,
        }

    @property
    def warnings(self) -> list[str]:
        """What a person should know before a direction is fitted, in sentences."""
        return [*_warn_of_repeats(self), *_warn_of_rules(self)]

    def __repr__(self) -> str:
        """Show what there is, and every warning on a line of its own."""
        shown = counted(self.num_pairs, "pair")
        lines = [f"PairInspection({self.trait_name!r}, {shown})", *self.warnings]
        return "\n  ".join(lines)

    def _repr_html_(self) -> str:
        title = f"{counted(self.num_pairs, 'pair')} for {self.trait_name!r}"
        rules = Table(
            header=["rule", "tells apart", "positive is"],
            rows=[[name, share, favours] for name, share, favours in self.rule_rows],
        )
        ends = Table(
            header=["end", self.unit.removesuffix("s"), "positive", "negative"],
            rows=[
                [end, text, positive, negative]
                for end, counts in self.ends.items()
                for text, positive, negative in counts
            ],
        )
        warned = [("warning", each) for each in self.warnings]
        facts = [*self.facts, *warned]
        return to_html(Card(title=title, facts=facts, tables=[rules, ends]))

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What is counted once, as lines for a person."""
        repeated = [f"{name} {count}" for name, count in self.repeats.items() if count]
        where = [f"{name} {count}" for name, count in self.differs_at.items() if count]
        longer = self.lengths.longer
        facts = [
            ("repeats", ", ".join(repeated) or "none"),
            (f"length in {self.lengths.unit}", str(self.lengths)),
            (
                "longer side",
                f"positive {longer['positive']}, negative {longer['negative']}, "
                f"neither {longer['neither']}",
            ),
            (f"first differing {self.unit.removesuffix('s')}", ", ".join(where)),
        ]
        if self.prompts["different"]:
            used = f"{self.prompts['different']} different"
            most = f"the most frequent in {counted(self.prompts['most_used'], 'pair')}"
            facts.append(("prompts", f"{used}, {most}"))
        return facts

    @property
    def rule_rows(self) -> list[tuple[str, str, str]]:
        """The rules as cells: name, share, what makes a side positive."""
        return [
            (
                name,
                f"{rule.share:.3f}",
                "" if rule.favours is None else one_line(str(rule.favours)),
            )
            for name, rule in self.rules.items()
        ]


def inspect_pairs(
    pairs: PairSet,
    token_ids: Sequence[Sequence[int]] | None = None,
    spell: Spell = str,
) -> PairInspection:
    """Say what a pair set is like.

    Args:
        pairs: The pairs.
        token_ids: Of each side, in the order of ``pairs.prompts``; without them words
            stand for tokens, those of a system's turn first, and lengths are in
            characters.
        spell: Says what a token stands for.
    """
    texts = [
        text if system is None else f"{system}\n{text}"
        for system, text in zip(pairs.systems, pairs.prompts, strict=True)
    ]
    sides: Sequence[Sequence[Hashable]]
    if token_ids is None:
        sides, unit = [text.split() for text in texts], "words"
        sizes, size_unit = [*map(len, texts)], "characters"
    else:
        sides, unit = [[spell(token) for token in ids] for ids in token_ids], "tokens"
        sizes, size_unit = [*map(len, token_ids)], "tokens"
    lengths = Lengths(unit=size_unit, positive=sizes[0::2], negative=sizes[1::2])
    return PairInspection(
        trait_name=pairs.trait_name,
        num_pairs=len(pairs),
        repeats=_count_repeats(pairs),
        lengths=lengths,
        differs_at=_locate(sides[0::2], sides[1::2]),
        ends={
            "first": _count_ends(sides, 0),
            "last": _count_ends(sides, -1),
        },
        prompts=_count_prompts(pairs),
        rules={
            **find_rules(sides[0::2], sides[1::2]),
            # By the finer measure where there is one.
            "length": find_rules(
                [range(size) for size in lengths.positive],
                [range(size) for size in lengths.negative],
            )["length"],
        },
        unit=unit,
    )


def _count_repeats(pairs: PairSet) -> dict[str, int]:
    whole = Counter(tuple(pair.document.items()) for pair in pairs)
    positive = Counter(pair.positive for pair in pairs)
    negative = Counter(pair.negative for pair in pairs)
    return {
        "pairs": _extra(whole),
        "positive": _extra(positive),
        "negative": _extra(negative),
        "equal_sides": sum(
            pair.positive == pair.negative
            and pair.positive_system == pair.negative_system
            for pair in pairs
        ),
        "texts_on_both_sides": len(positive.keys() & negative.keys()),
    }


def _extra(counts: Counter[str] | Counter[tuple[tuple[str, str], ...]]) -> int:
    """Count what would go if everything were there once."""
    return sum(counts.values()) - len(counts)


def _count_prompts(pairs: PairSet) -> dict[str, int]:
    used = Counter(pair.prompt for pair in pairs if pair.prompt is not None)
    return {
        "different": len(used),
        "most_used": max(used.values(), default=0),
        "without": len(pairs) - sum(used.values()),
    }


def _locate(
    positives: Sequence[Sequence[Hashable]], negatives: Sequence[Sequence[Hashable]]
) -> dict[str, int]:
    places = {"first": 0, "middle": 0, "last": 0, "never": 0}
    for positive, negative in zip(positives, negatives, strict=True):
        index = first_difference(positive, negative)
        last = max(len(positive), len(negative)) - 1
        if index is None:
            places["never"] += 1
        elif index == 0:
            places["first"] += 1
        else:
            places["last" if index == last else "middle"] += 1
    return places


def _count_ends(
    sides: Sequence[Sequence[Hashable]], end: int
) -> list[tuple[str, int, int]]:
    """Count the most frequent first or last things on either side."""
    positive = Counter(str(side[end]) for side in sides[0::2] if side)
    negative = Counter(str(side[end]) for side in sides[1::2] if side)
    both = (positive + negative).most_common(_MOST_FREQUENT)
    return [(text, positive[text], negative[text]) for text, _ in both]


def _warn_of_repeats(found: PairInspection) -> list[str]:
    repeats, of_all = found.repeats, f"of {counted(found.num_pairs, 'pair')}"
    count, equal = repeats["pairs"], repeats["equal_sides"]
    warnings = []
    if count:
        what = "repeats another" if count == 1 else "repeat others"
        warnings.append(f"{of_all} {count} {what}, which counts twice in a fit")
    if equal:
        verb = "has" if equal == 1 else "have"
        warnings.append(
            f"{of_all} {equal} {verb} the same text on both sides, which no direction "
            "orders"
        )
    return warnings


def _warn_of_rules(found: PairInspection) -> list[str]:
    if found.num_pairs < _FEW_PAIRS:
        return []
    noun = found.unit.removesuffix("s")
    names = {
        "first": f"the first {noun}",
        "last": f"the last {noun}",
        "difference": f"the first {noun} that differs",
    }
    lengths, warnings = found.lengths, []
    rule = found.rules["length"]
    if lengths.chance < UNLIKELY:
        warnings.append(
            f"the sides differ systematically in length: the {rule.favours} one is "
            f"positive in {rule.share:.0%} of the pairs, so a direction or a "
            "log-probability may follow length and no trait"
        )
    for name, what in names.items():
        rule = found.rules[name]
        if rule.share >= TELLING_SHARE:
            most = "" if rule.favours is None else f" (as {quoted(str(rule.favours))})"
            warnings.append(
                f"{what} of a side{most} tells {rule.share:.0%} of the pairs apart: a "
                "direction that does no better may have found that alone"
            )
    return warnings
