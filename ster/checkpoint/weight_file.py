"""One weight file: opened and mapped, and refused once it has changed.

A run reads a file for minutes or hours. If somebody writes to it meanwhile, the numbers
would be others; if somebody cuts it, touching the lost bytes would end the process. So
its size and time of change are compared with those at the beginning. They are those of
the open file: a careful tool, which puts a new file in place of the old one, does no
harm.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import sys
import weakref
from dataclasses import dataclass
from pathlib import Path

from ster.checkpoint.lookalikes import (
    HEAD_BYTES,
    POINTER_CAUSE,
    is_pointer,
    kind_of_file,
)
from ster.checkpoint.safetensors_header import (
    LENGTH_BYTES,
    TensorPlace,
    header_size,
    parse_header,
)
from ster.errors import WeightsError

# Some systems read no more than 2 GiB at a time.
_READ_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class WeightFile:
    """An open weight file; it is closed when nothing refers to it any more.

    Args:
        path: Where it lay when it was opened.
        mapped: All its bytes. Touching those of a file that was cut ends the process.
        descriptor: Of the mapped file, even if another lies at ``path`` by now.
        size: In bytes, when it was opened.
        mtime_ns: When it was last written to, as it was then.
    """

    path: Path
    mapped: mmap.mmap
    descriptor: int
    size: int
    mtime_ns: int

    @classmethod
    def open(cls, path: Path) -> WeightFile:
        """Open and map a file.

        Raises:
            WeightsError: It cannot be read, or is something else than a file.
        """
        try:
            # Opening a pipe would wait for somebody to write to it.
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(path, flags)
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from error
        try:
            return _map(path, descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def read_header(self) -> tuple[int, dict[str, TensorPlace]]:
        """Return where the data begins in the file, and the places of the tensors.

        Raises:
            WeightsError: The file is no whole safetensors file.
        """
        try:
            length = self.read(0, min(LENGTH_BYTES, self.size))
            size = header_size(length, self.size)
            data = LENGTH_BYTES + size
            return data, parse_header(self.read(LENGTH_BYTES, size), self.size - data)
        except ValueError as error:
            causes = [str(error)]
            if is_pointer(self.read(0, min(HEAD_BYTES, self.size))):
                causes = [POINTER_CAUSE]
            sentence = f"{self.path.name} is damaged or cannot be read"
            raise WeightsError(sentence, *causes, path=self.path) from error

    def read(self, start: int, size: int) -> bytes:
        """Copy bytes out without the mapping, so that a file that was cut is an error.

        Raises:
            WeightsError: The bytes cannot be read, or the file has changed since it was
                opened, even during this read.
        """
        parts: list[bytes] = []
        try:
            while size > 0:
                part = os.pread(self.descriptor, min(size, _READ_BYTES), start)
                if not part:
                    break
                parts.append(part)
                start += len(part)
                size -= len(part)
        except OSError as error:
            raise _unreadable(self.path, error) from error
        self.check_unchanged()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def check_unchanged(self) -> None:
        """Refuse a file that was written to or cut since it was opened.

        It costs one system call, and misses a writer who puts the old time back.

        Raises:
            WeightsError: It has changed, or its state cannot be read.
        """
        try:
            status = os.fstat(self.descriptor)
        except OSError as error:
            raise _unreadable(self.path, error) from error
        if (status.st_size, status.st_mtime_ns) == (self.size, self.mtime_ns):
            return
        cause = "something writes to it; run again when the file is whole"
        if status.st_size != self.size:
            cause = f"it had {self.size} bytes and has {status.st_size} now: {cause}"
        raise WeightsError(
            f"the weight file {self.path} changed while it was read",
            cause,
            path=self.path,
            found=status.st_size,
            expected=self.size,
        )


def _map(path: Path, descriptor: int) -> WeightFile:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        kind = kind_of_file(status.st_mode)
        cause = f"it is {kind}, not a file"
        raise WeightsError(
            f"{path.name} is damaged or cannot be read", cause, path=path
        )
    if status.st_size == 0:
        sentence = f"{path.name} is damaged or cannot be read"
        raise WeightsError(sentence, "it is empty", path=path)
    try:
        mapped = _map_bytes(descriptor, status.st_size)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    file = WeightFile(
        path=path,
        mapped=mapped,
        descriptor=descriptor,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
    )
    weakref.finalize(file, os.close, descriptor)
    return file


def _map_bytes(descriptor: int, size: int) -> mmap.mmap:
    if sys.version_info >= (3, 13):
        # Otherwise mmap takes a second descriptor, and a shell allows few.
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, trackfd=False)
    return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)


def _unreadable(path: Path, error: OSError | ValueError) -> WeightsError:
    causes: list[str | BaseException] = [error]
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        causes.append("`ulimit -n 4096` lets the shell's programs open more files")
    sentence = f"{path.name} is damaged or cannot be read"
    return WeightsError(sentence, *causes, path=path)
