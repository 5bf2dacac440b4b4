"""Files that appear whole or not at all, with the directories that they need."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import BinaryIO, Self

from ster.documents.descriptors import find_descriptor, open_descriptor
from ster.documents.temporary_files import TemporaryFile
from ster.errors import OutputError, name_path
from ster.interrupts import raise_if_stopped


class AtomicFile:
    """A file that its readers see as it was, or whole: never half-written.

    It is written under a hidden name beside its place and renamed over it when the
    ``with`` ends well. Otherwise the old file stays and nothing else is left. A
    symbolic link stays a link, and a device or a pipe (``/dev/null``) is written
    directly. ``/dev/stdout`` means the descriptor itself, so a log that the shell
    appends to keeps its text.

    Args:
        path: Where the file shall be. Parent directories are made.

    Raises:
        OutputError: At any step, when the file cannot be written.
    """

    __slots__ = ("_direct", "_made", "_temporary", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = name_path(path)
        self._made: list[str] = []
        self._temporary: TemporaryFile | None = None
        self._direct: BinaryIO | None = None

    def __enter__(self) -> Self:
        """Open the file, which shows whether the place can be written."""
        with self._failures():
            self._open()
        return self

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        with self._failures():
            self._opened().write(data)

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

    def set_aside(self, ending: bytes, suffix: str) -> str | None:
        """Keep what was written under a longer name, and leave the place as it was.

        This is another way to end a ``with``, for output of use though incomplete.

        Args:
            ending: Written before the file is closed.
            suffix: Put behind the name.

        Returns:
            The path; None where nothing could be kept, as when the place is a pipe.
        """
        kept = self._temporary
        if kept is None:
            self._discard()
            return None
        try:
            kept.write(ending)
            kept.finish()
            kept.move(suffix)
        except (OSError, ValueError):
            self._discard()
            return None
        except BaseException:
            self._discard()
            raise
        is_beside = not os.path.islink(self.path)
        return (self.path if is_beside else os.path.realpath(self.path)) + suffix

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        # ValueError is how Python refuses a name with NUL, before any system call.
        except (OSError, ValueError) as error:
            self._discard()
            sentence = f"failed to write {self.path}"
            raise OutputError(sentence, error, path=self.path) from error
        except BaseException:
            self._discard()
            raise

    def _open(self) -> None:
        _require_name(self.path)
        path = _absolute(self.path)
        descriptor = find_descriptor(path)
        if descriptor is not None:
            self._direct = open_descriptor(descriptor)
            return
        self._made = make_directories(os.path.dirname(path))
        path = _absolute(self.path)
        status = _status(path)
        if status is None:
            self._temporary = TemporaryFile(os.path.realpath(path), mode=None)
        elif stat.S_ISDIR(status.st_mode):
            raise _os_error(errno.EISDIR)
        elif _is_named_file(path, status):
            # A rename would replace a write-protected file too; opening it is refused.
            os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
            mode = stat.S_IMODE(status.st_mode)
            self._temporary = TemporaryFile(os.path.realpath(path), mode)
        else:
            opened = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)
            self._direct = os.fdopen(opened, "wb")

    def _opened(self) -> TemporaryFile | BinaryIO:
        file = self._temporary or self._direct
        if file is None:
            raise ValueError("the file is not open")
        return file

    def _commit(self) -> None:
        self._opened()
        if self._direct is not None:
            self._direct.close()
            raise_if_stopped()
        elif self._temporary is not None:
            self._temporary.finish()
            raise_if_stopped()
            self._temporary.move()

    def _discard(self) -> None:
        if self._direct is not None:
            with suppress(OSError):
                self._direct.close()
        if self._temporary is not None:
            self._temporary.remove()
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


def _make_directory(directory: str, made: list[str]) -> None:
    try:
        os.mkdir(directory)
        made.append(directory)
    except FileExistsError:
        # Another process made it meanwhile, or "a/.." exists since "a" was made.
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


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
