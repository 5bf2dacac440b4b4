"""Files and directories under a hidden name beside their place, until they are whole.

A run holds a lock on what it writes, which the system releases however the run ends. So
a hidden file without a lock belongs to no run, and the next run that writes to the same
directory removes it. On a file system without locks nothing is removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

_NAME = re.compile(r"\.ster-[0-9a-f]{16}\.tmp", re.ASCII)


def hidden_name_beside(target: str) -> str:
    """Invent a path in the directory of a target, short whatever the target's name."""
    name = f".ster-{secrets.token_hex(8)}.tmp"
    return os.path.join(os.path.dirname(target), name)


class TemporaryFile:
    """A file beside its place that gets its name when it is whole.

    Args:
        target: Where it shall be, without symbolic links.
        mode: Its permissions; None are those of any new file.

    Raises:
        OSError: It cannot be made, here or at any later step.
    """

    __slots__ = ("_file", "_lock", "_name", "_target")

    def __init__(self, target: str, mode: int | None) -> None:
        remove_leftovers(os.path.dirname(target))
        self._target = target
        self._name, self._lock = _create(target, _make_file)
        # Both descriptors hold the lock, so it lasts until the closed file is moved.
        self._file = os.fdopen(os.dup(self._lock), "wb")
        if mode is not None:
            os.fchmod(self._lock, mode)

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        self._file.write(data)

    def finish(self) -> None:
        """Bring what was written to the disk."""
        self._file.flush()
        _sync(self._file)
        self._file.close()

    def move(self, suffix: str = "") -> None:
        """Put the finished file in its place, or beside it under a longer name."""
        os.replace(self._name, self._target + suffix)
        self._unlock()

    def remove(self) -> None:
        """Leave nothing behind."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            os.unlink(self._name)
        self._unlock()

    def _unlock(self) -> None:
        descriptor, self._lock = self._lock, -1
        with suppress(OSError):
            os.close(descriptor)


@contextmanager
def hidden_directory(target: str) -> Iterator[str]:
    """Make a directory beside a place that it is to be renamed to.

    Raises:
        OSError: It cannot be made.
    """
    remove_leftovers(os.path.dirname(target))
    name, lock = _create(target, _make_directory)
    try:
        yield name
    finally:
        shutil.rmtree(name, ignore_errors=True)  # if it is still there
        os.close(lock)


def remove_leftovers(directory: str) -> None:
    """Remove what killed runs left in a directory."""
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                _remove_if_unlocked(entry)


def _remove_if_unlocked(entry: os.DirEntry[str]) -> None:
    with suppress(OSError):
        # A pipe of this name would wait for its writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(entry.path, flags)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)
        finally:
            os.close(descriptor)


def _create(target: str, make: Callable[[str], int]) -> tuple[str, int]:
    """Make and lock a hidden file or directory.

    Another run may take it for a leftover before it is locked; then it is made anew.

    Returns:
        The name and an open descriptor.
    """
    while True:
        name = hidden_name_beside(target)
        descriptor = make(name)
        if _lock(descriptor) and _is_there(name, descriptor):
            return name, descriptor
        os.close(descriptor)


def _make_file(name: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(name, flags, 0o666)


def _make_directory(name: str) -> int:
    os.mkdir(name)
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _lock(descriptor: int) -> bool:
    """Lock a file; False where another run has locked it.

    On a file system without locks the file counts as locked by this run.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN)
    return True


def _is_there(name: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(name), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _sync(file: BinaryIO) -> None:
    try:
        os.fsync(file.fileno())
    except OSError as error:
        # Some network file systems have no fsync; a full disk is another matter.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
