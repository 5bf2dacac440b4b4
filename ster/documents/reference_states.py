"""Reference documents: hidden states that another implementation has computed.

JSON is one object, read strictly: ``layers``, the block indices, and ``records``, each
with ``tokens``, its token ids, or ``prompt``, or both, and ``hidden``, what the blocks
hand on, (num_layers, num_positions, hidden_size). ``positions`` says which tokens these
are where they are not all. Safetensors and npz hold all records in the arrays
``layers``, ``lengths`` (num_records,), ``tokens`` (num_tokens,) and ``hidden``
(num_tokens, num_layers, hidden_size), one record's tokens after the other's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ster.documents.fields import field, optional_string, require
from ster.documents.formats import JSON, NPZ, SAFETENSORS, input_format
from ster.documents.strict_json import JsonError, read_document
from ster.documents.tensors.parts import document_failures
from ster.errors import DocumentError, name_path
from ster.text import quoted

F64 = NDArray[np.float64]
Path = str | os.PathLike[str]
_UNREAD, _INVALID = "failed to read reference", "invalid reference"
_KEYS = {"layers", "records", "source"}
_RECORD_KEYS = {"hidden", "positions", "prompt", "tokens"}
_ARRAYS = ("layers", "lengths", "tokens", "hidden")
_MOST_LAYER, _MOST_TOKEN = 10_000, 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRecord:
    """One text's hidden states.

    Args:
        prompt: The text, None where only its tokens are known.
        tokens: Its token ids, None where only the text is known.
        positions: The tokens that there are states of, ascending; None is all.
        hidden: (num_layers, num_positions, hidden_size).
    """

    prompt: str | None
    tokens: tuple[int, ...] | None
    positions: tuple[int, ...] | None
    hidden: F64


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Hidden states of another implementation.

    Args:
        path: Where they were read.
        layers: Block indices, ascending.
        records: One a text.
    """

    path: str
    layers: tuple[int, ...]
    records: tuple[ReferenceRecord, ...]


def read_reference(path: Path) -> Reference:
    """Read a reference document.

    Raises:
        DocumentError: It cannot be read, or does not fit together.
    """
    form = input_format(path, (JSON, SAFETENSORS, NPZ))
    label = name_path(path)
    if form == JSON:
        layers, records = read_document(
            path, _parse, unread=_UNREAD, invalid=f"{_INVALID} JSON"
        )
    else:
        with document_failures(path, unread=_UNREAD, invalid=_INVALID):
            layers, records = _parse_arrays(_load_arrays(path, form))
    return Reference(path=label, layers=layers, records=tuple(records))


def _parse(document: object) -> tuple[tuple[int, ...], list[ReferenceRecord]]:
    fields = require("the document", document, dict)
    _refuse_unknown(fields, _KEYS)
    optional_string(fields, "source")
    layers = _layers(field(fields, "layers", list))
    records = [
        _parse_record(number, require(f"record {number}", each, dict), len(layers))
        for number, each in enumerate(field(fields, "records", list), start=1)
    ]
    if not records:
        raise DocumentError("reference has no records")
    return layers, records


def _parse_record(
    number: int, fields: dict[str, object], num_layers: int
) -> ReferenceRecord:
    _refuse_unknown(fields, _RECORD_KEYS)
    prompt = optional_string(fields, "prompt")
    tokens = _whole_numbers(fields, "tokens", number)
    if prompt is None and not tokens:
        raise JsonError(f"record {number} has neither a prompt nor tokens")
    positions = _whole_numbers(fields, "positions", number)
    hidden = _numbers(field(fields, "hidden", list), number)
    _check_hidden(hidden, number, num_layers)
    expected = positions if positions is not None else tokens
    if expected is not None and hidden.shape[1] != len(expected):
        what = "tokens" if positions is None else "positions"
        _differs(number, f"{hidden.shape[1]} rows a layer for {len(expected)} {what}")
    if positions is not None and list(positions) != sorted(set(positions)):
        raise JsonError(f"the positions of record {number} do not ascend")
    return ReferenceRecord(
        prompt=prompt, tokens=tokens, positions=positions, hidden=hidden
    )


def _load_arrays(path: Path, form: str) -> Mapping[str, NDArray[Any]]:
    """Read the arrays of a reference; never a pickle."""
    if form == NPZ:
        from ster.documents.tensors.npz import load_npz  # late: few runs need it

        return load_npz(path, _ARRAYS)
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (SafetensorError, TypeError) as error:
        raise JsonError(f"it cannot be read as arrays of numpy: {error}") from error


def _parse_arrays(
    arrays: Mapping[str, NDArray[Any]],
) -> tuple[tuple[int, ...], list[ReferenceRecord]]:
    for name in _ARRAYS:
        if name not in arrays:
            raise JsonError(f"it has no array `{name}`")
        kinds = "f" if name == "hidden" else "iu"
        if arrays[name].dtype.kind not in kinds:
            raise JsonError(f"`{name}` has values of type {arrays[name].dtype}")
    layers = _layers(arrays["layers"].tolist())
    tokens, lengths, hidden = arrays["tokens"], arrays["lengths"], arrays["hidden"]
    if tokens.ndim != 1 or lengths.ndim != 1 or not len(lengths) or lengths.min() < 1:
        raise JsonError(
            "`tokens` and `lengths` are no lists of tokens and their counts"
        )
    if hidden.shape[:2] != (len(tokens), len(layers)) or lengths.sum() != len(tokens):
        raise JsonError(
            f"`hidden` is {hidden.shape}, for {len(tokens)} tokens, "
            f"{int(lengths.sum())} of them in records, and {len(layers)} layers"
        )
    records = []
    ends = np.cumsum(lengths)
    for number, end in enumerate(ends.tolist(), start=1):
        own = slice(end - int(lengths[number - 1]), end)
        states = np.moveaxis(hidden[own], 0, 1).astype(np.float64)
        _check_hidden(states, number, len(layers))
        ids = tuple(map(int, tokens[own]))
        _check_range("tokens", ids, number)
        records.append(
            ReferenceRecord(prompt=None, tokens=ids, positions=None, hidden=states)
        )
    return layers, records


def _layers(listed: object) -> tuple[int, ...]:
    if not isinstance(listed, list) or any(type(each) is not int for each in listed):
        raise JsonError("`layers` is no list of block indices")
    if not listed or listed != sorted(set(listed)) or listed[0] < 0:
        raise JsonError("`layers` must be block indices that ascend")
    return tuple(listed)


def _whole_numbers(
    fields: dict[str, object], name: str, number: int
) -> tuple[int, ...] | None:
    if fields.get(name) is None:
        return None
    listed = field(fields, name, list)
    if not listed or any(type(each) is not int for each in listed):
        raise JsonError(f"`{name}` of record {number} is no list of whole numbers")
    taken: tuple[int, ...] = tuple(listed)  # type: ignore[arg-type]
    _check_range(name, taken, number)
    return taken


def _check_range(name: str, values: Sequence[int], number: int) -> None:
    if not 0 <= min(values) <= max(values) < _MOST_TOKEN:
        raise JsonError(f"`{name}` of record {number} has a number out of range")


def _numbers(rows: object, number: int) -> F64:
    try:
        hidden = np.array(rows)
    except ValueError:
        hidden = np.array(None)
    if hidden.dtype.kind not in "fiu" or hidden.ndim != 3:
        _differs(number, "no numbers by layer, position and channel")
    return hidden.astype(np.float64)


def _check_hidden(hidden: F64, number: int, num_layers: int) -> None:
    """Refuse states of other layers, without numbers, or without a length."""
    if hidden.ndim != 3 or not hidden.size or len(hidden) != num_layers:
        _differs(number, f"the shape {hidden.shape} for {num_layers} layers")
    if not np.isfinite(hidden).all():
        _differs(number, "a value that is not finite")
    if not np.linalg.norm(hidden, axis=2).all():
        _differs(number, "a row of zeros, which nothing can be compared with")


def _differs(number: int, what: str) -> NoReturn:
    raise DocumentError(
        f"`hidden` of record {number} has {what}", field="hidden", prompt=number
    )


def _refuse_unknown(fields: dict[str, object], known: set[str]) -> None:
    for name in fields:
        if name not in known:
            raise JsonError(f"unknown key {quoted(name)}")
