"""Safetensors: a header that places every array, then their bytes in that order.

The arrays stand in the order in which they are announced, without gaps. A writer that
puts the wide types first and fills up its texts keeps every array aligned.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ster.documents.strict_json import JsonError, dump_json
from ster.documents.tensors.parts import (
    F16,
    F32,
    I64,
    U8,
    Array,
    Bytes,
    Part,
    TensorFile,
)

_NAMES: dict[np.dtype[Any], str] = {F32: "F32", F16: "F16", I64: "I64", U8: "U8"}
# These are recognised, so that what is refused can be named.
_OTHERS = {"F64": "<f8", "I32": "<i4", "I16": "<i2", "I8": "i1", "BOOL": "?"}
_TYPES = {name: dtype for dtype, name in _NAMES.items()}
_TYPES |= {name: np.dtype(word) for name, word in _OTHERS.items()}
_ALIGNMENT = 8
# The library allows 100 MB, and a hostile header of that size takes a minute.
_MAX_HEADER_BYTES = 16 * 2**20


class SafetensorsStream:
    """Write a safetensors file in one pass, without going back.

    Args:
        sink: Takes the bytes.
        parts: All arrays, in the order in which their values will come.
        metadata: Texts by name.
        label: The file, for what is said when a text is no Unicode.

    Raises:
        OutputError: A text is no Unicode.
    """

    __slots__ = ("_header", "_sink")

    def __init__(
        self,
        sink: Callable[[Bytes], None],
        parts: Sequence[Part],
        metadata: Mapping[str, str],
        label: str,
    ) -> None:
        self._sink = sink
        header: dict[str, object] = {"__metadata__": dict(metadata)}
        at = 0
        for part in parts:
            place = [at, at + part.nbytes]
            header[part.name] = {
                "dtype": _NAMES[part.dtype],
                "shape": part.shape,
                "data_offsets": place,
            }
            at += part.nbytes
        text = dump_json(header, label)
        text += b" " * (-len(text) % _ALIGNMENT)
        self._header = len(text).to_bytes(8, "little") + text

    def begin(self, part: Part) -> None:
        """Begin the next part; the header comes before the first."""
        del part
        header, self._header = self._header, b""
        if header:
            self._sink(header)

    def write(self, data: Bytes) -> None:
        """Append values of the part that was begun."""
        self._sink(data)

    def finish(self) -> None:
        """End the file; nothing stands behind the last part."""

    def abort(self) -> None:
        """Write nothing more; nothing is held back."""


@contextmanager
def open_safetensors(path: str | os.PathLike[str]) -> Iterator[TensorFile]:
    """Open a safetensors file; its header is checked, and no array read.

    Raises:
        OSError: It cannot be read.
        JsonError: It is no safetensors file.
    """
    # Late, as not every run reads one.
    from safetensors import SafetensorError, safe_open

    _check_header_size(path)
    try:
        with safe_open(os.fsdecode(path), framework="numpy") as file:
            places = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            parts = {
                name: Part(name, _TYPES[place.get_dtype()], tuple(place.get_shape()))
                for name, place in places.items()
                if place.get_dtype() in _TYPES
            }

            def read(part: Part) -> Array:
                array: Array = file.get_tensor(part.name)
                return array

            yield TensorFile(file.metadata() or {}, parts, read)
    except SafetensorError as error:
        raise JsonError(str(error)) from error


def _check_header_size(path: str | os.PathLike[str]) -> None:
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if size > _MAX_HEADER_BYTES:
        raise JsonError(f"its header would take {size} bytes")
