"""One weight file: opened, read in pieces, and refused once it has changed.

A run reads a file for minutes or hours. If somebody writes to it meanwhile, the numbers
would be others. So its size and time of change are compared with those at the
beginning. They are those of the open file: a careful tool, which puts a new file in
place of the old one, does no harm.

It is never mapped: touching the lost bytes of a file that was cut ends the process, and
a read that fails is an error.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ster.checkpoint.lookalikes import (
    HEAD_BYTES,
    explain_head,
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
# macOS's wish for bytes that will be read, from its <sys/fcntl.h>.
_F_RDADVISE = 44


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class WeightFile:
    """An open weight file; it is closed when nothing refers to it any more.

    Args:
        path: Where it lay when it was opened.
        descriptor: Of that file, even if another lies at ``path`` by now.
        size: In bytes, when it was opened.
        mtime_ns: When it was last written to, as it was then.
    """

    path: Path
    descriptor: int
    size: int
    mtime_ns: int

    @classmethod
    def open(cls, path: Path) -> WeightFile:
        """Open a file.

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
            return _opened(path, descriptor)
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
            known = explain_head(self.read(0, min(HEAD_BYTES, self.size)))
            sentence = f"{self.path.name} is damaged or cannot be read"
            raise WeightsError(sentence, known or error, path=self.path) from error

    def read(self, start: int, size: int) -> bytes:
        """Copy bytes out; fewer where the file ends.

        Raises:
            WeightsError: The bytes cannot be read, or the file has changed since it was
                opened, even during this read.
        """
        parts: list[bytes] = []
        while size > 0:
            part = self._read_part(start, size)
            if not part:
                break
            parts.append(part)
            start += len(part)
            size -= len(part)
        self.check_unchanged()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, start: int, out: NDArray[Any]) -> None:
        """Fill a contiguous array with the bytes from some place on.

        Raises:
            WeightsError: As for ``read``.
        """
        self.copy_into(start, out)
        self.check_unchanged()

    def copy_into(self, start: int, out: NDArray[Any]) -> None:
        """Fill an array as ``read_into`` does; whoever calls asks ``check_unchanged``.

        Raises:
            WeightsError: The bytes cannot be read.
        """
        left = out.reshape(-1).view(np.uint8).data
        while len(left):
            count = self._fill(start, left[:_READ_BYTES])
            if not count:
                self.check_unchanged()
                sentence = f"{self.path.name} is damaged or cannot be read"
                raise WeightsError(sentence, "it ends too early", path=self.path)
            start += count
            left = left[count:]

    def _fill(self, start: int, out: memoryview) -> int:
        try:
            if hasattr(os, "preadv"):
                return os.preadv(self.descriptor, [out], start)
        except OSError as error:
            raise _unreadable(self.path, error) from error
        part = self._read_part(start, len(out))
        out[: len(part)] = part
        return len(part)

    def _read_part(self, start: int, size: int) -> bytes:
        try:
            return os.pread(self.descriptor, min(size, _READ_BYTES), start)
        except OSError as error:
            raise _unreadable(self.path, error) from error

    def prefetch(self, start: int, size: int) -> None:
        """Have the system read bytes in the background, if it will."""
        with suppress(OSError):
            if hasattr(os, "posix_fadvise"):
                wish = os.POSIX_FADV_WILLNEED
                os.posix_fadvise(self.descriptor, start, size, wish)
            elif sys.platform == "darwin":
                # struct radvisory, which says where and how much.
                for at in range(start, start + size, _READ_BYTES):
                    count = min(_READ_BYTES, start + size - at)
                    wished = struct.pack("@qi4x", at, count)
                    fcntl.fcntl(self.descriptor, _F_RDADVISE, wished)

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


def _opened(path: Path, descriptor: int) -> WeightFile:
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
    file = WeightFile(
        path=path,
        descriptor=descriptor,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
    )
    weakref.finalize(file, os.close, descriptor)
    return file


def _unreadable(path: Path, error: OSError | ValueError) -> WeightsError:
    causes: list[str | BaseException] = [error]
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        causes.append("`ulimit -n 4096` lets the shell's programs open more files")
    sentence = f"{path.name} is damaged or cannot be read"
    return WeightsError(sentence, *causes, path=path)
