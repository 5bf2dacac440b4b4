"""Labels as JSON: what is known of each prompt, in values that every reader has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, time

import numpy as np

from ster.documents.fields import require
from ster.errors import DocumentError

_LARGEST, _SMALLEST = 2**64 - 1, -(2**63)


def plain_labels(labels: Mapping[str, Sequence[object]]) -> dict[str, list[object]]:
    """Turn labels into JSON values.

    Numbers of numpy become Python's, days and times their ISO text, tuples lists, and a
    missing value (not a number, not a time) null.

    Raises:
        DocumentError: A value is of a kind that JSON does not have.
    """
    return {
        str(name): [_plain(value, str(name)) for value in values]
        for name, values in labels.items()
    }


def parse_labels(document: object) -> dict[str, tuple[object, ...]]:
    """Read labels again; JsonError where they are no lists by name."""
    lists = require("`labels`", document, dict)
    return {
        name: tuple(require(f"label {name}", values, list))
        for name, values in lists.items()
    }


def _plain(value: object, name: str) -> object:
    if isinstance(value, np.datetime64 | np.timedelta64):
        return None if np.isnat(value) else str(value)
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(each, name) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, name) for each in value]
    return _plain_scalar(value, name)


def _plain_scalar(value: object, name: str) -> object:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if math.isfinite(value):
            return float(value)
    if isinstance(value, int) and _SMALLEST <= value <= _LARGEST:
        return int(value)
    if isinstance(value, date | time):
        # A time that is missing, as pandas has it, differs from itself.
        return value.isoformat() if value == value else None
    raise DocumentError(
        f"label {name} holds a value that JSON does not have: {value!r:.80}",
        field=name,
        found=value,
    )
