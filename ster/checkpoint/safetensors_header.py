"""The header of a safetensors file: which tensors it has, and where each one lies.

Read once, and as strictly as the safetensors library reads it: the tensors fill the
file's data from its first byte to its last, without a gap and without an overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

from ster.documents.strict_json import read_json

# The length of the header stands before it.
LENGTH_BYTES = 8
# The largest mixtures of experts have 100,000 tensors, spread over a hundred files; in
# one file, at 150 bytes each, they would still fit. The library allows 100 MB, but a
# hostile header of that size takes a minute and a gigabyte to read.
MAX_HEADER_BYTES = 16 * 2**20
_MAX_VALUES = 2**64 - 1
# Bits of a value. A type of less than a byte is packed.
_TYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a tensor lies; bytes are counted from the first one behind the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def header_size(length: bytes, file_size: int) -> int:
    """Read how many bytes the header takes, before any of them is read.

    Args:
        length: The file's first 8 bytes, or all it has.
        file_size: In bytes.

    Raises:
        ValueError: The file is too short, or the header too long.
    """
    if len(length) < LENGTH_BYTES:
        raise ValueError(f"it ends after {len(length)} bytes")
    size = int.from_bytes(length, "little")
    if size > file_size - LENGTH_BYTES:
        raise ValueError(
            f"its header would take {size} bytes, and {file_size - LENGTH_BYTES} "
            "are there"
        )
    if size > MAX_HEADER_BYTES:
        raise ValueError(
            f"its header takes {size} bytes, and no checkpoint needs more than "
            f"{MAX_HEADER_BYTES}"
        )
    return size


def parse_header(text: bytes, data_size: int) -> dict[str, TensorPlace]:
    """Read the places of all tensors.

    Args:
        text: The header.
        data_size: Bytes of the file behind it.

    Raises:
        ValueError: It is no header, or does not describe that many bytes.
    """
    if not text.startswith(b"{"):
        raise ValueError("its header is no JSON object")
    document = read_json(text)
    assert isinstance(document, dict)  # noqa: S101 - it begins with a brace
    _check_metadata(document.pop("__metadata__", None))
    places = {name: _parse_place(name, entry) for name, entry in document.items()}
    _check_places(places, data_size)
    return places


def _check_metadata(metadata: object) -> None:
    texts = metadata.values() if isinstance(metadata, dict) else [metadata]
    if metadata is not None and not all(isinstance(text, str) for text in texts):
        raise ValueError("its __metadata__ is no object of texts")


def _parse_place(name: str, entry: object) -> TensorPlace:
    fields = entry if isinstance(entry, dict) else {}
    dtype, shape = fields.get("dtype"), fields.get("shape")
    offsets = fields.get("data_offsets")
    if not (
        isinstance(dtype, str)
        and _are_counts(shape)
        and _are_counts(offsets)
        and len(offsets) == 2
    ):
        raise ValueError(
            f"its header gives the tensor {name} no proper dtype, shape and "
            "data_offsets"
        )
    if dtype not in _TYPE_BITS:
        raise ValueError(f"the tensor {name} has the unknown type {dtype}")
    return TensorPlace(dtype, tuple(shape), offsets[0], offsets[1])


def _are_counts(values: object) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(
        type(value) is int and value >= 0 for value in values
    )


def _check_places(places: dict[str, TensorPlace], data_size: int) -> None:
    at = 0
    order = sorted(places.items(), key=lambda item: (item[1].start, item[1].stop))
    for name, place in order:
        if place.start != at or place.stop < place.start:
            found = f"bytes {place.start} to {place.stop}"
            raise ValueError(
                f"the tensor {name} lies at {found}, where byte {at} should come next"
            )
        bits = _count_values(name, place.shape) * _TYPE_BITS[place.dtype]
        if bits != 8 * (place.stop - place.start):
            raise ValueError(
                f"the tensor {name} has {place.stop - place.start} bytes, which do not "
                f"make {place.dtype} of shape {list(place.shape)}"
            )
        at = place.stop
    if at != data_size:
        raise ValueError(f"its tensors take {at} bytes, and {data_size} are there")


def _count_values(name: str, shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
        # The library refuses a count that overflows, and Python's would not.
        if count > _MAX_VALUES:
            raise ValueError(f"the tensor {name} has too large a shape")
    return count
