"""Pairs from Python: texts, values, mappings and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from ster.documents.pair_sets.entries import choose_names, make_pair
from ster.documents.pair_sets.pair import ContrastPair
from ster.documents.prompt_sets.entries import EntryError
from ster.documents.prompt_sets.given import column_names, refuse_splits, take_rows
from ster.errors import DocumentError, PromptError

_LIST = "a list of (positive, negative) texts"


def take_pairs(given: object) -> tuple[ContrastPair, ...]:
    """Make pairs of whatever ``PairSet.of`` takes.

    Raises:
        DocumentError: It is something else, or something in it is no pair.
    """
    try:
        refuse_splits(given, "pairs", _LIST)
        names = column_names(given)
        rows = None if names is None else take_rows(given, names, "pairs")
    except PromptError as error:
        raise DocumentError(
            error.sentence, *error.causes, field="pairs", found=given, expected=_LIST
        ) from None
    if names is None or rows is None:
        pairs = enumerate(_take_list(given), start=1)
        return tuple(_take_pair(pair, number) for number, pair in pairs)
    try:
        choose_names(name for name in names if isinstance(name, str))
    except EntryError as error:
        sentence = "a table of pairs needs a column for each side"
        raise DocumentError(sentence, str(error), field="pairs", found=given) from None
    return tuple(_of_object(row, number) for number, row in enumerate(rows, start=1))


def _take_list(pairs: object) -> list[object]:
    """Take a list; a mapping would come apart into its keys, and a set has no order."""
    if isinstance(pairs, Iterable) and not isinstance(pairs, str | Mapping | Set):
        return list(pairs)
    raise DocumentError(
        f"pairs must be {_LIST}, not {type(pairs).__name__}",
        "ster.PairSet.load(path) reads a document",
        field="pairs",
        found=pairs,
        expected=_LIST,
    )


def _take_pair(given: object, number: int) -> ContrastPair:
    if isinstance(given, ContrastPair):
        return given
    if isinstance(given, Mapping):
        return _of_object(given, number)
    # A string of two letters would come apart as a pair too.
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise DocumentError(
            "pair set contains what is no (positive, negative) pair", found=given
        )
    return ContrastPair(positive=given[0], negative=given[1])


def _of_object(given: object, number: int) -> ContrastPair:
    try:
        return make_pair(given)
    except EntryError as error:
        sentence = f"pair {number} cannot be read"
        raise DocumentError(sentence, str(error), found=given, prompt=number) from None
