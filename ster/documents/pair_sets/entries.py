"""One pair as files and tables have it: fields by name, ster's or CAA's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ster.documents.pair_sets.pair import FIELDS, ContrastPair
from ster.documents.prompt_sets.entries import EntryError, plain
from ster.text import quoted

# What the data sets of contrastive activation addition call the same.
CAA_NAMES = {
    "positive": "answer_matching_behavior",
    "negative": "answer_not_matching_behavior",
    "prompt": "question",
}
NEEDED = ("positive", "negative")
_WAYS = "`positive` and `negative`, or CAA's `answer_matching_behavior` and so on"


def choose_names(there: Iterable[str]) -> dict[str, str]:
    """Find what holds each part of a pair among the names of fields or columns.

    Names that are no part of a pair are left out.

    Returns:
        The name that was found by the name in ``FIELDS``.

    Raises:
        EntryError: A side has no name here, or a part has two.
    """
    names = [*there]
    found: dict[str, str] = {}
    for field in FIELDS:
        known = [each for each in (field, CAA_NAMES.get(field)) if each in names]
        if len(known) > 1:
            raise EntryError(f"both `{known[0]}` and `{known[1]}` are there")
        if known and known[0] is not None:
            found[field] = known[0]
    for field in NEEDED:
        if field not in found:
            shown = ", ".join(map(quoted, names)) or "nothing"
            raise EntryError(f"no `{field}` among {shown}; a pair has {_WAYS}")
    return found


def make_pair(given: object) -> ContrastPair:
    """Make a pair of an object with such fields; others are left out.

    Raises:
        EntryError: It is none, or a field of it is of the wrong kind.
    """
    if not isinstance(given, Mapping):
        raise EntryError(f"no object with {_WAYS}")
    # A table writes None, or a NaN, for what a row does not have.
    fields = {
        key: value
        for key, each in given.items()
        if isinstance(key, str) and not _is_missing(value := plain(each))
    }
    parts: dict[str, Any] = {}
    for field, name in choose_names(fields).items():
        if not isinstance(fields[name], str):
            raise EntryError(f"`{name}` is no string")
        parts[field] = str.__str__(fields[name])
    return ContrastPair(**parts)


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and value != value)
