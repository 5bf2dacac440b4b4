"""The pair set: ``{"trait_name": "...", "pairs": [{"positive", "negative"}, ...]}``.

A pair may have a ``prompt`` too, which both its sides answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from ster.documents.cards import pair_card
from ster.documents.strict_json import JsonError, read_document
from ster.errors import DocumentError
from ster.html import to_html
from ster.text import counted, quoted, trim


@dataclass(frozen=True, slots=True, kw_only=True)
class ContrastPair:
    """Two texts that differ in one trait.

    Args:
        positive: The text that has it.
        negative: The text that lacks it, or has its opposite.
        prompt: What a user says and both texts answer, if anything.

    Example:
        >>> from ster import ContrastPair
        >>> ContrastPair(prompt="How are you?", positive="Splendid!", negative="Awful.")
        ContrastPair(positive='Splendid!', negative='Awful.', prompt='How are you?')
    """

    positive: str
    negative: str
    prompt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PairSet:
    """Contrastive pairs for one trait.

    Args:
        trait_name: What the positive sides have.
        pairs: The pairs, in the order that ``optimize`` splits them in.

    Raises:
        DocumentError: There are no pairs, or a side or a prompt is blank or no text.
    """

    trait_name: str
    pairs: tuple[ContrastPair, ...]

    def __post_init__(self) -> None:
        """Check once that there is something to compare."""
        if not isinstance(self.trait_name, str):
            raise DocumentError(
                "the name of a trait must be a string",
                field="trait_name",
                found=self.trait_name,
            )
        _check(self.pairs, "pair set")

    def __len__(self) -> int:
        """Count the pairs."""
        return len(self.pairs)

    def __iter__(self) -> Iterator[ContrastPair]:
        """Go through the pairs in order."""
        return iter(self.pairs)

    def __repr__(self) -> str:
        """Show the trait and the number of pairs, not their texts."""
        return f"PairSet({self.trait_name!r}, {counted(len(self), 'pair')})"

    def _repr_html_(self) -> str:
        return to_html(pair_card(self))

    @property
    def prompts(self) -> list[str]:
        """All sides, each positive one followed by its negative one."""
        return [side for pair in self.pairs for side in (pair.positive, pair.negative)]

    @property
    def asked(self) -> list[str | None]:
        """What each of the sides in ``prompts`` answers, if anything."""
        return [pair.prompt for pair in self.pairs for _ in range(2)]

    @classmethod
    def of(
        cls, pairs: Iterable[tuple[str, str] | ContrastPair], *, trait_name: str = ""
    ) -> PairSet:
        """Make a pair set of (positive, negative) texts or of ``ContrastPair`` values.

        Raises:
            DocumentError: As for the class, or something is no pair of strings.

        Example:
            >>> from ster import PairSet
            >>> PairSet.of([("What a joy!", "What a pity!")], trait_name="happy")
            PairSet('happy', 1 pair)
        """
        made = tuple(_make_pair(pair) for pair in _take_list(pairs))
        return cls(trait_name=trait_name, pairs=made)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PairSet:
        """Read a pair set. One without a ``trait_name`` is named after its file.

        Raises:
            DocumentError: The file cannot be read or is no pair set, has no pairs or
                one with a blank side or prompt.
        """
        label = os.fsdecode(path)
        trait_name, pairs = read_document(
            path,
            _parse,
            unread="failed to read pair set",
            invalid="invalid pair set JSON",
        )
        _check(pairs, f"pair set {label}")
        return cls(
            trait_name=Path(label).stem if trait_name is None else trait_name,
            pairs=pairs,
        )


def _take_list(pairs: object) -> list[object]:
    """Take a list; a mapping would come apart into its keys, and a set has no order."""
    if isinstance(pairs, Iterable) and not isinstance(pairs, str | Mapping | Set):
        return list(pairs)
    raise DocumentError(
        "pairs must be a list of (positive, negative) texts, not "
        f"{type(pairs).__name__}",
        "ster.PairSet.load(path) reads a document",
        field="pairs",
        found=pairs,
        expected="a list of (positive, negative) texts",
    )


def _make_pair(sides: object) -> ContrastPair:
    if isinstance(sides, ContrastPair):
        return sides
    # A string of two letters would come apart as a pair too.
    if not isinstance(sides, tuple | list) or len(sides) != 2:
        raise DocumentError(
            "pair set contains what is no (positive, negative) pair", found=sides
        )
    return ContrastPair(positive=sides[0], negative=sides[1])


def _check(pairs: tuple[ContrastPair, ...], label: str) -> None:
    if not pairs:
        raise DocumentError(f"{label} contains no pairs")
    for number, pair in enumerate(pairs, start=1):
        sides = pair.positive, pair.negative
        asked = () if pair.prompt is None else (pair.prompt,)
        fault = _find_fault(sides, "side", "positive or negative prompt")
        found: object = sides
        if fault is None:
            fault, found = _find_fault(asked, "prompt", "prompt"), pair.prompt
        if fault is not None:
            raise DocumentError(f"{label} contains {fault}", found=found, prompt=number)


def _find_fault(texts: Sequence[str], name: str, long_name: str) -> str | None:
    if not all(isinstance(text, str) for text in texts):
        return f"a {name} that is no string"
    if not all(map(trim, texts)):
        return f"an empty {long_name}"
    try:
        "".join(texts).encode("utf-8")
    except UnicodeEncodeError:
        return f"a {name} with a lone surrogate, which is no character"
    return None


def _parse(document: object) -> tuple[str | None, tuple[ContrastPair, ...]]:
    fields = _object("the document", document, {"trait_name", "pairs"})
    if "pairs" not in fields:
        raise JsonError("missing field `pairs`")
    pairs = fields["pairs"]
    if not isinstance(pairs, list):
        raise JsonError("`pairs` is no list")
    trait_name = fields.get("trait_name")
    if trait_name is not None and not isinstance(trait_name, str):
        raise JsonError("`trait_name` is no string")
    return trait_name, tuple(
        _parse_pair(f"pairs[{index}]", pair) for index, pair in enumerate(pairs)
    )


def _parse_pair(where: str, document: object) -> ContrastPair:
    fields = _object(where, document, {"prompt", "positive", "negative"})
    asked = fields.get("prompt") is not None
    return ContrastPair(
        positive=_text(where, fields, "positive"),
        negative=_text(where, fields, "negative"),
        prompt=_text(where, fields, "prompt") if asked else None,
    )


def _object(where: str, document: object, known: set[str]) -> dict[str, object]:
    if not isinstance(document, dict):
        raise JsonError(f"{where} is no object")
    for key in document:
        if key not in known:
            raise JsonError(f"{where} has the unknown field {quoted(key)}")
    return document


def _text(where: str, fields: dict[str, object], name: str) -> str:
    if name not in fields:
        raise JsonError(f"missing field `{name}` of {where}")
    text = fields[name]
    if not isinstance(text, str):
        raise JsonError(f"`{name}` of {where} is no string")
    return text
