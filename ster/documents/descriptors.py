"""Paths that mean a descriptor of this process: /dev/stdout, /dev/fd/3.

Opening such a path by name would truncate a log, or write over its beginning. The
descriptor itself keeps the position and the append mode that the shell gave it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import BinaryIO

_MOST_LINKS = 40  # Linux follows as many


def find_descriptor(path: str) -> int | None:
    """Return the descriptor that a path means, None where it is another path.

    Args:
        path: Absolute. Symbolic links are followed.
    """
    process = os.path.realpath("/proc/self")
    for _ in range(_MOST_LINKS):
        directory, name = os.path.split(path)
        directory = os.path.realpath(directory)
        in_process = directory == "/dev/fd" or (
            directory.startswith(f"{process}/") and directory.endswith("/fd")
        )
        if in_process and name.isascii() and name.isdecimal():
            return int(name)
        path = os.path.join(directory, name)
        if not os.path.islink(path):
            return None
        path = os.path.join(directory, os.readlink(path))
    return None


def open_descriptor(descriptor: int) -> BinaryIO:
    """Open a copy of a descriptor, which shares its position and its flags.

    Raises:
        OSError: It is not open, or not for writing.
    """
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return os.fdopen(os.dup(descriptor), "wb")


def is_standard_output(path: str | os.PathLike[str]) -> bool:
    """Tell whether what is written to a path appears on standard output."""
    try:
        place = os.path.join(os.getcwd(), path)
        if find_descriptor(place) == 1:
            return True
        return os.path.samestat(os.stat(place), os.fstat(1))
    except (OSError, ValueError):
        return False
