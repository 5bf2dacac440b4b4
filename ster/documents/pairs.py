"""The pair set: ``{"trait_name": "...", "pairs": [{"positive", "negative"}, ...]}``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from ster.documents.strict_json import JsonError, read_document
from ster.errors import DocumentError
from ster.text import counted, quoted, trim


@dataclass(frozen=True, slots=True, kw_only=True)
class ContrastPair:
    """Two texts that differ in one trait.

    Args:
        positive: The text that has it.
        negative: The text that lacks it, or has its opposite.
    """

    positive: str
    negative: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PairSet:
    """Contrastive pairs for one trait.

    Args:
        trait_name: What the positive sides have.
        pairs: The pairs, in the order that ``optimize`` splits them in.

    Raises:
        DocumentError: There are no pairs, or a side is blank.
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

    @property
    def prompts(self) -> list[str]:
        """All sides, each positive one followed by its negative one."""
        return [side for pair in self.pairs for side in (pair.positive, pair.negative)]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]], *, trait_name: str = "") -> PairSet:
        """Make a pair set of (positive, negative) texts.

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
                one with a blank side.
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
        if not all(isinstance(side, str) for side in sides):
            sentence = f"{label} contains a side that is no string"
            raise DocumentError(sentence, found=sides, prompt=number)
        if not all(map(trim, sides)):
            sentence = f"{label} contains an empty positive or negative prompt"
            raise DocumentError(sentence, found=sides, prompt=number)


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
    fields = _object(where, document, {"positive", "negative"})
    return ContrastPair(
        positive=_text(where, fields, "positive"),
        negative=_text(where, fields, "negative"),
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
