"""Numpy's npz: a zip archive with one .npy file for each array.

Members are stored, not compressed, with a fixed date, so equal arrays make equal bytes.
The metadata are a member too: bytes that hold a JSON object of texts.
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from ster.documents.fields import require_texts
from ster.documents.strict_json import JsonError, dump_json, read_json
from ster.documents.tensors.parts import (
    U8,
    Array,
    Bytes,
    Part,
    TensorFile,
)
from ster.text import quoted

METADATA = "metadata"
_KINDS = "biuf"  # truths and numbers
_DATE = (1980, 1, 1, 0, 0, 0)  # a zip cannot say an earlier one
_MAX_METADATA_BYTES = 2**24
_MAX_HEADER_BYTES = 4096
_PIECE_BYTES = 2**20
# Numbers and texts shrink to a hundredth only where somebody made them to.
_MAX_RATIO, _HARMLESS_BYTES = 100, 2**26
_BROKEN = (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error)
_ENCRYPTED = 0x1


class NpzStream:
    """Write an npz file in one pass, without going back.

    Args:
        sink: Takes the bytes.
        metadata: Texts by name.
        label: The file, for what is said when a text is no Unicode.

    Raises:
        OutputError: A text is no Unicode.
    """

    __slots__ = ("_member", "_metadata", "_sink", "_zip")

    def __init__(
        self,
        sink: Callable[[Bytes], None],
        metadata: Mapping[str, str],
        label: str,
    ) -> None:
        self._metadata = dump_json(dict(metadata), label)
        self._sink = _Sink(sink)
        self._zip: zipfile.ZipFile | None = None
        self._member: IO[bytes] | None = None

    def begin(self, part: Part) -> None:
        """Begin the next part; the metadata come before the first."""
        if self._zip is None:
            self._zip = zipfile.ZipFile(self._sink, "w")
            self.begin(Part(METADATA, U8, (len(self._metadata),)))
            self.write(self._metadata)
        self._end_member()
        header = _npy_header(part)
        info = zipfile.ZipInfo(f"{part.name}.npy", _DATE)
        info.create_system = 3  # of the same run on every system
        info.file_size = len(header) + part.nbytes  # so that a large one gets zip64
        self._member = self._zip.open(info, "w")
        self._member.write(header)

    def write(self, data: Bytes) -> None:
        """Append values of the part that was begun."""
        if self._member is None:
            raise ValueError("no part was begun")
        self._member.write(data)

    def finish(self) -> None:
        """Write the archive's list of members."""
        self._end_member()
        if self._zip is not None:
            self._zip.close()

    def abort(self) -> None:
        """Write nothing more: the archive is closed into the void."""
        self._sink.is_closed = True
        self.finish()

    def _end_member(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            member.close()


class _Sink(io.RawIOBase):
    """What the archive writes to: a place that knows no way back."""

    def __init__(self, sink: Callable[[Bytes], None]) -> None:
        self._write = sink
        self.is_closed = False

    def writable(self) -> bool:
        return True

    def write(self, data: Bytes) -> int:  # type: ignore[override]
        if not self.is_closed:
            self._write(data)
        return len(data)


def _npy_header(part: Part) -> bytes:
    written = io.BytesIO()
    fields = {"descr": part.dtype.str, "fortran_order": False, "shape": part.shape}
    np.lib.format.write_array_header_1_0(written, fields)
    return written.getvalue()


@contextmanager
def open_npz(path: str | os.PathLike[str]) -> Iterator[TensorFile]:
    """Open an npz file; its members are listed, and no array read.

    Raises:
        OSError: It cannot be read.
        JsonError: It is no npz file that ster reads.
    """
    with _open_archive(path) as archive:
        yield _list_members(archive)


def load_npz(path: str | os.PathLike[str], names: Iterable[str]) -> dict[str, Array]:
    """Read arrays that any program has written as ``numpy.savez`` does.

    Args:
        path: The file.
        names: The arrays that are read, where they are there.

    Raises:
        OSError: It cannot be read.
        JsonError: It is no npz file that ster reads.
    """
    found: dict[str, Array] = {}
    with _open_archive(path) as archive:
        there = {info.filename: info for info in archive.infolist()}
        for name in names:
            info = there.get(f"{name}.npy")
            if info is None:
                continue
            _check_member(info)
            with archive.open(info) as member:
                found[name] = np.lib.format.read_array(
                    member, allow_pickle=False, max_header_size=_MAX_HEADER_BYTES
                )
    return found


@contextmanager
def _open_archive(path: str | os.PathLike[str]) -> Iterator[zipfile.ZipFile]:
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                yield archive
        except JsonError:
            raise
        except (*_BROKEN, EOFError, OverflowError, ValueError) as error:
            raise JsonError(str(error) or type(error).__name__) from error


def _list_members(archive: zipfile.ZipFile) -> TensorFile:
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise JsonError(f"the member {quoted(name)} is there twice")
        members[name] = info
    parts: dict[str, Part] = {}
    starts: dict[str, int] = {}
    for name, info in members.items():
        found = _read_header(archive, name, info)
        if found is not None:
            parts[name], starts[name] = found

    def read(part: Part) -> Array:
        return _read_values(archive, members[part.name], part, starts[part.name])

    return TensorFile(_read_metadata(parts, read), parts, read)


def _read_metadata(
    parts: dict[str, Part], read: Callable[[Part], Array]
) -> dict[str, str]:
    part = parts.pop(METADATA, None)
    if part is None or part.dtype != U8 or part.nbytes > _MAX_METADATA_BYTES:
        raise JsonError("it has no metadata of ster's")
    return require_texts("its metadata", read_json(read(part).tobytes()))


def _read_header(
    archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo
) -> tuple[Part, int] | None:
    """Read what a member is, and where its values begin; None where it is foreign."""
    if not info.filename.endswith(".npy"):
        return None
    _check_member(info)
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version != (1, 0):
            raise JsonError(f"the member {quoted(name)} is of another version of npy")
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(
            member, max_header_size=_MAX_HEADER_BYTES
        )
        start = member.tell()
    # An array of objects is a pickle, which may run any program when it is read.
    if is_fortran or dtype.kind not in _KINDS:
        return None
    part = Part(name, dtype, shape)
    if min(shape, default=0) < 0 or start + part.nbytes != info.file_size:
        raise JsonError(f"the member {quoted(name)} has another size than its shape")
    return part, start


def _check_member(info: zipfile.ZipInfo) -> None:
    """Refuse what takes more than the archive has, or a password."""
    if info.flag_bits & _ENCRYPTED:
        raise JsonError(f"the member {quoted(info.filename)} is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise JsonError(f"the member {quoted(info.filename)} is packed in another way")
    limit = max(_HARMLESS_BYTES, _MAX_RATIO * info.compress_size)
    if info.file_size > limit:
        raise JsonError(
            f"the member {quoted(info.filename)} would be {info.file_size} bytes out "
            f"of {info.compress_size}"
        )


def _read_values(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, part: Part, start: int
) -> Array:
    array = np.empty(part.shape, part.dtype)
    place: Any = array.reshape(-1).view(U8)
    with archive.open(info) as member:
        member.read(start)
        at = 0
        while piece := member.read(_PIECE_BYTES):
            place[at : at + len(piece)] = np.frombuffer(piece, U8)
            at += len(piece)
    if at != part.nbytes:
        raise JsonError(f"the member {quoted(part.name)} ends early")
    return array
