"""Files that appear whole or not at all, with the directories that they need."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import BinaryIO, Self

from ster.errors import OutputError
from ster.interrupts import raise_if_stopped


class AtomicFile:
    """A file that its readers see as it was, or whole: never half-written.

    It is written under a hidden name beside its place and renamed over it when the
    ``with`` ends well. Otherwise the old file stays and nothing else is left. A
    symbolic link stays one, and a device or a pipe (``/dev/null``) is written directly.

    Args:
        path: Where the file shall be. Parent directories are made.

    Raises:
        OutputError: At any step, when the file cannot be written.
    """

    __slots__ = ("_file", "_made", "_target", "_temporary", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._made: list[str] = []
        self._target = ""
        self._temporary = ""
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        """Open the file, which shows whether the place can be written."""
        with self._failures():
            self._open()
        return self

    def write(self, data: bytes) -> None:
        """Append bytes."""
        with self._failures():
            if self._file is None:
                raise ValueError("the file is not open")
            self._file.write(data)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put the file in its place, or after an error leave all as it was."""
        if kind is not None:
            self._discard()
            return
        with self._failures():
            self._commit()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        # ValueError is how Python refuses a name with NUL, before any system call.
        except (OSError, ValueError) as error:
            self._discard()
            raise OutputError(f"failed to write {self.path}", error) from error
        except BaseException:
            self._discard()
            raise

    def _open(self) -> None:
        _require_name(self.path)
        self._made = make_directories(os.path.dirname(_absolute(self.path)))
        path = _absolute(self.path)
        status = _status(path)
        if status is None:
            self._open_beside(os.path.realpath(path), mode=None)
        elif stat.S_ISDIR(status.st_mode):
            raise _os_error(errno.EISDIR)
        elif _is_named_file(path, status):
            # A rename asks the directory only; a write-protected file stays protected.
            os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
            mode = stat.S_IMODE(status.st_mode)
            self._open_beside(os.path.realpath(path), mode=mode)
        else:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)
            self._file = os.fdopen(descriptor, "wb")

    def _open_beside(self, target: str, mode: int | None) -> None:
        self._target = target
        self._temporary = hidden_name_beside(target)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.fdopen(os.open(self._temporary, flags, 0o666), "wb")
        if mode is not None:
            os.fchmod(self._file.fileno(), mode)

    def _commit(self) -> None:
        if self._file is None:
            raise ValueError("the file is not open")
        self._file.flush()
        if self._temporary:
            _sync(self._file)
        self._file.close()
        raise_if_stopped()
        if self._temporary:
            os.replace(self._temporary, self._target)
            self._temporary = ""

    def _discard(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        if self._temporary:
            with suppress(OSError):
                os.unlink(self._temporary)
        remove_directories(self._made)


def make_directories(directory: str) -> list[str]:
    """Make a directory and the parents it lacks, all of them or none.

    Returns:
        What was made, outermost first, for ``remove_directories``.

    Raises:
        OSError: A part of the path cannot be made or is no directory.
    """
    missing: list[str] = []
    while directory and not os.path.isdir(directory):
        missing.append(directory)
        directory = os.path.dirname(directory.rstrip("/"))
    made: list[str] = []
    try:
        for directory in reversed(missing):
            _make_directory(directory, made)
    except BaseException:
        remove_directories(made)
        raise
    return made


def remove_directories(made: list[str]) -> None:
    """Remove directories that a run made, innermost first, and keep those in use."""
    for directory in reversed(made):
        with suppress(OSError):
            os.rmdir(directory)


def hidden_name_beside(target: str) -> str:
    """Invent a path in the directory of a target, short whatever the target's name."""
    name = f".ster-{secrets.token_hex(8)}.tmp"
    return os.path.join(os.path.dirname(target), name)


def _make_directory(directory: str, made: list[str]) -> None:
    try:
        os.mkdir(directory)
        made.append(directory)
    except FileExistsError:
        # Another process made it meanwhile, or "a/.." came to be with "a".
        if not os.path.isdir(directory):
            raise _os_error(errno.ENOTDIR) from None


def _require_name(path: str) -> None:
    if not path:
        raise _os_error(errno.ENOENT)
    if path.endswith("/"):
        raise _os_error(errno.EISDIR)
    if path.startswith("~/"):  # a directory of that name is a trap
        raise ValueError("ster leaves ~ to the shell; write the whole path")


def _absolute(path: str) -> str:
    # Not os.path.abspath: "link/.." is not always the directory that holds the link.
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _is_named_file(path: str, status: os.stat_result) -> bool:
    """Tell a regular file that a rename can replace; /dev/fd/3 may have no name."""
    if not stat.S_ISREG(status.st_mode):
        return False
    named = _status(os.path.realpath(path))
    return named is not None and os.path.samestat(named, status)


def _sync(file: BinaryIO) -> None:
    try:
        os.fsync(file.fileno())
    except OSError as error:
        # Some network file systems have no fsync; a full disk is another matter.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
