"""Files of pairs: JSON, JSON lines and tables, as the suffix says."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ster.documents.mix_ups import refuse_other_kinds
from ster.documents.pair_sets.entries import choose_names, make_pair
from ster.documents.pair_sets.pair import FIELDS, ContrastPair, check_pairs
from ster.documents.pairs import PairSet
from ster.documents.prompt_sets.delimited import check_widths, read_rows
from ster.documents.prompt_sets.entries import EntryError
from ster.documents.prompt_sets.given_bytes import (
    BYTE_ORDER_MARK,
    STANDARD_INPUT,
    decode_utf8,
    read_given,
    read_json_lines,
)
from ster.documents.strict_json import JsonError, is_blank, read_json
from ster.errors import DocumentError, name_path
from ster.text import quoted

_UNREAD = "failed to read pair set"
# What people keep tables in and ster does not read.
_OTHER_FILES = (".parquet", ".arrow", ".feather", ".xlsx", ".pkl", ".pickle", ".npz")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parsed:
    """What stands in a file, before it is checked.

    Args:
        pairs: The pairs.
        lines: The line that each begins on, where a file has lines.
        trait_name: What the file calls the trait.
    """

    pairs: tuple[ContrastPair, ...]
    lines: tuple[int, ...] = ()
    trait_name: str | None = None


@dataclass(frozen=True, slots=True)
class _Form:
    parse: Callable[[bytes], _Parsed]
    name: str


def read_pair_set(
    path: str | os.PathLike[str], *, stream: BinaryIO | None = None
) -> PairSet:
    """Read a file of pairs, in order and unchanged; as for ``PairSet.load``.

    Raises:
        DocumentError: It cannot be read, is no pair set or has no pairs, or a part of a
            pair is blank.
    """
    given = name_path(path)
    suffix = os.path.splitext(given)[1].lower()
    if suffix in _OTHER_FILES and os.path.isfile(given):
        raise DocumentError(
            f"{_UNREAD} {given}",
            f"{suffix} is not read here; ster.PairSet.of(table) takes what pandas "
            "reads of it",
            path=given,
            found=suffix,
        )
    label, data = read_given(path, stream, _UNREAD)
    is_input = given == STANDARD_INPUT
    if is_blank(data) and (is_input or suffix in _FORMS):
        sentence = f"pair set {label} contains no pairs"
        raise DocumentError(sentence, "it is empty", path=label)
    form = _tell_form(data) if is_input else _FORMS.get(suffix, _JSON)
    try:
        parsed = form.parse(data)
        check_pairs(parsed.pairs, f"pair set {label}", parsed.lines)
    except (JsonError, EntryError) as error:
        sentence = f"invalid pair set {form.name} in {label}"
        raise DocumentError(sentence, error, path=label) from error
    except DocumentError as error:
        error.path = error.path or label
        raise
    name = parsed.trait_name
    if name is None:
        name = "" if is_input else Path(label).stem
    return PairSet(trait_name=name, pairs=parsed.pairs)


def _tell_form(data: bytes) -> _Form:
    """Tell what standard input is: JSON, lines of JSON objects, or a table."""
    content = data.removeprefix(BYTE_ORDER_MARK).lstrip()
    first = content.split(b"\n", 1)[0]
    if content[:1] not in (b"{", b"["):
        return _TSV if b"\t" in first else _CSV
    try:
        fields = read_json(first)
    except JsonError:
        return _JSON
    is_line = isinstance(fields, dict) and not fields.keys() & {"pairs", "trait_name"}
    return _JSON_LINES if is_line else _JSON


def _parse_json(data: bytes) -> _Parsed:
    document = read_json(data)
    if isinstance(document, list):
        return _Parsed(
            pairs=tuple(
                _make(each, f"pair {number}")
                for number, each in enumerate(document, start=1)
            )
        )
    return _parse_document(document)


def _parse_document(document: object) -> _Parsed:
    """Take the document that ster writes; what it does not know is refused."""
    if not isinstance(document, dict):
        raise JsonError("the document is neither an object nor a list of pairs")
    refuse_other_kinds(document, "pairs")
    fields = _object("the document", document, ("trait_name", "pairs"))
    if "pairs" not in fields:
        raise JsonError("missing field `pairs`")
    pairs = fields["pairs"]
    if not isinstance(pairs, list):
        raise JsonError("`pairs` is no list")
    trait_name = fields.get("trait_name")
    if trait_name is not None and not isinstance(trait_name, str):
        raise JsonError("`trait_name` is no string")
    made = [_strict_pair(f"pairs[{index}]", pair) for index, pair in enumerate(pairs)]
    return _Parsed(pairs=tuple(made), trait_name=trait_name)


def _strict_pair(where: str, document: object) -> ContrastPair:
    fields = _object(where, document, FIELDS)
    there = [name for name in FIELDS[2:] if fields.get(name) is not None]
    return ContrastPair(**{n: _text(where, fields, n) for n in (*FIELDS[:2], *there)})


def _object(where: str, document: object, known: tuple[str, ...]) -> dict[str, object]:
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


def _parse_json_lines(data: bytes) -> _Parsed:
    values = list(read_json_lines(data))
    return _Parsed(
        pairs=tuple(_make(value, f"line {number}") for number, value in values),
        lines=tuple(number for number, _ in values),
    )


def _make(value: object, place: str) -> ContrastPair:
    try:
        return make_pair(value)
    except EntryError as error:
        raise EntryError(f"{place}: {error}") from None


def _parse_table(data: bytes, delimiter: str) -> _Parsed:
    """Take a table; an empty field is none, but where a side should be."""
    names, table = read_rows(decode_utf8(data), delimiter)
    try:
        chosen = choose_names(names)
    except EntryError as error:
        raise EntryError(f"line 1: {error}") from None
    check_widths(names, table)
    places = {field: names.index(name) for field, name in chosen.items()}
    pairs = []
    for _, row in table:
        parts = {field: row[at] for field, at in places.items()}
        own = {n: text for n, text in parts.items() if text or n in FIELDS[:2]}
        pairs.append(ContrastPair(**own))
    return _Parsed(pairs=tuple(pairs), lines=tuple(line for line, _ in table))


_JSON = _Form(_parse_json, "JSON")
_JSON_LINES = _Form(_parse_json_lines, "JSON")
_CSV = _Form(lambda data: _parse_table(data, ","), "CSV")
_TSV = _Form(lambda data: _parse_table(data, "\t"), "CSV")
_FORMS = {".jsonl": _JSON_LINES, ".csv": _CSV, ".tsv": _TSV}
