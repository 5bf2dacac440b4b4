"""GGUF, as far as control vectors need it: texts and numbers by key, f32 vectors.

The file is little-endian: magic, version, how many tensors and keys there are; the keys
with their values; the places of the tensors; and, aligned, the tensors. It is read here
with a bound on everything that the file declares, since it may come from anywhere.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from ster.documents.strict_json import JsonError
from ster.text import quoted

F32 = npt.NDArray[np.float32]
Value = str | int | float | bool | F32 | None
ARCHITECTURE = "general.architecture"

_MAGIC, _VERSION = b"GGUF", 3
_VERSIONS = (2, 3)
_ALIGNMENT, _LARGEST_ALIGNMENT = 32, 2**20
_F32_TENSOR = 0
# The kinds of values by their numbers; the simple ones as struct writes them.
_SIMPLE = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
    10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_U32, _FLOAT, _STRING, _ARRAY = 4, 6, 8, 9
# A control vector has a tensor for each layer, and no more keys than a page shows.
_MAX_KEYS, _MAX_TENSORS, _MAX_AXES = 2**16, 2**16, 4
_MAX_TEXT_BYTES = 2**24


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What a file holds: values by key, and its f32 tensors of one axis by name."""

    fields: dict[str, Value]
    tensors: dict[str, F32]


def dump_gguf(
    fields: Mapping[str, str | int | F32], tensors: Mapping[str, F32]
) -> bytes:
    """Write a file: whole numbers as u32, arrays and tensors as f32.

    Raises:
        UnicodeEncodeError: A text is no Unicode.
    """
    parts = [_MAGIC, struct.pack("<IQQ", _VERSION, len(tensors), len(fields))]
    for key, value in fields.items():
        parts += [_dump_text(key), _dump_value(value)]
    at = 0
    for name, tensor in tensors.items():
        place = struct.pack("<IQIQ", 1, len(tensor), _F32_TENSOR, at)
        parts += [_dump_text(name), place]
        at += _aligned(tensor.nbytes, _ALIGNMENT)
    header = b"".join(parts)
    data = [_padded(tensor.astype("<f4").tobytes()) for tensor in tensors.values()]
    return _padded(header) + b"".join(data)


def read_gguf(path: str | os.PathLike[str], architecture: str) -> GgufFile:
    """Read a file of one architecture; arrays of other things than f32 are skipped.

    Raises:
        OSError: It cannot be read.
        JsonError: It is no GGUF file, or of another architecture.
    """
    with open(path, "rb") as file:
        return _Reader(file).read(architecture)


def _dump_text(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _dump_value(value: str | int | F32) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _dump_text(value)
    if isinstance(value, int):
        return struct.pack("<II", _U32, value)
    head = struct.pack("<IIQ", _ARRAY, _FLOAT, len(value))
    return head + value.astype("<f4").tobytes()


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % _ALIGNMENT)


class _Reader:
    """Reads a file from its beginning to its end, and never past it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size

    def read(self, architecture: str) -> GgufFile:
        if self._take(len(_MAGIC)) != _MAGIC:
            raise JsonError("it does not begin as GGUF does")
        version = self._number(_U32)
        if version not in _VERSIONS:
            raise JsonError(f"it is GGUF of version {version}; ster reads 2 and 3")
        num_tensors = self._count(_MAX_TENSORS, "tensors")
        num_keys = self._count(_MAX_KEYS, "keys")
        fields: dict[str, Value] = {}
        for _ in range(num_keys):
            key = self._text()
            if key in fields:
                raise JsonError(f"key {quoted(key)} is given twice")
            fields[key] = self._value()
            if key == ARCHITECTURE:  # mostly the first, so a model is left unread
                _check_architecture(fields, architecture)
        _check_architecture(fields, architecture)
        places = [self._place() for _ in range(num_tensors)]
        if len(dict(places)) != num_tensors:
            raise JsonError("a tensor is there twice")
        start = _aligned(self._file.tell(), _read_alignment(fields))
        tensors = {name: self._tensor(start, place) for name, place in places}
        return GgufFile(fields, tensors)

    def _take(self, count: int) -> bytes:
        if count > self._size - self._file.tell():
            raise JsonError("it ends early")
        data = self._file.read(count)
        if len(data) != count:
            raise JsonError("it ends early")
        return data

    def _number(self, kind: int) -> int | float | bool:
        form = _SIMPLE[kind]
        number: int | float | bool = struct.unpack(
            form, self._take(struct.calcsize(form))
        )[0]
        return number

    def _long(self) -> int:
        return int.from_bytes(self._take(8), "little")

    def _count(self, limit: int, what: str) -> int:
        count = self._long()
        if count > limit:
            raise JsonError(f"it declares {count} {what}")
        return count

    def _text(self) -> str:
        data = self._take(self._count(_MAX_TEXT_BYTES, "bytes of a text"))
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise JsonError("a text of it is not UTF-8") from error

    def _value(self) -> Value:
        kind = self._number(_U32)
        if kind == _STRING:
            return self._text()
        if kind == _ARRAY:
            return self._array()
        if kind not in _SIMPLE:
            raise JsonError(f"it has a value of the unknown kind {kind}")
        return self._number(int(kind))

    def _array(self) -> F32 | None:
        kind, count = int(self._number(_U32)), self._long()
        if kind == _STRING:
            for _ in range(count):  # each takes 8 bytes of the file at least
                self._skip(self._long())
            return None
        if kind not in _SIMPLE:
            raise JsonError(f"it has an array of the unknown kind {kind}")
        size = count * struct.calcsize(_SIMPLE[kind])
        if kind == _FLOAT and size <= _MAX_TEXT_BYTES:
            return np.frombuffer(self._take(size), "<f4").astype(np.float32)
        self._skip(size)
        return None

    def _skip(self, count: int) -> None:
        if count > self._size - self._file.tell():
            raise JsonError("it ends early")
        self._file.seek(count, os.SEEK_CUR)

    def _place(self) -> tuple[str, tuple[int, int]]:
        """Read where a tensor lies: how many values it has, and from which byte on."""
        name = self._text()
        num_axes = int(self._number(_U32))
        if num_axes > _MAX_AXES:
            raise JsonError(f"the tensor {quoted(name)} has {num_axes} axes")
        width, *others = [self._long() for _ in range(num_axes)] or [1]
        kind, offset = self._number(_U32), self._long()
        if any(size != 1 for size in others):
            raise JsonError(f"the tensor {quoted(name)} is no vector")
        if kind != _F32_TENSOR:
            raise JsonError(f"the tensor {quoted(name)} is not f32")
        return name, (width, offset)

    def _tensor(self, start: int, place: tuple[int, int]) -> F32:
        width, offset = place
        if start + offset + 4 * width > self._size:
            raise JsonError("it ends early")
        self._file.seek(start + offset)
        return np.frombuffer(self._take(4 * width), "<f4").astype(np.float32)


def _check_architecture(fields: Mapping[str, Value], architecture: str) -> None:
    found = fields.get(ARCHITECTURE)
    if found != architecture:
        shown = quoted(found) if isinstance(found, str) else "none"
        raise JsonError(f"its {ARCHITECTURE} is {shown}, not {quoted(architecture)}")


def _read_alignment(fields: Mapping[str, Value]) -> int:
    alignment = fields.get("general.alignment", _ALIGNMENT)
    if type(alignment) is not int or not 0 < alignment <= _LARGEST_ALIGNMENT:
        raise JsonError("its general.alignment is none")
    return alignment
