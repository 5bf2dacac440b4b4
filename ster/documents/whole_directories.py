"""Directories that appear whole or not at all, with the parents that they need."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ster.documents.temporary_files import hidden_directory
from ster.documents.whole_files import make_directories, remove_directories
from ster.errors import OutputError
from ster.interrupts import raise_if_stopped


@contextmanager
def whole_directory(directory: str) -> Iterator[str]:
    """Fill a directory under a hidden name beside its place, then rename it.

    Args:
        directory: The place; nothing, or an empty directory, may be there.

    Yields:
        The hidden directory, to be filled. An ``OSError`` that leaves the ``with`` is
        taken for one of writing there.

    Raises:
        OutputError: The place is taken, or a part cannot be written. Nothing is left.
    """
    staging = ""
    try:
        place = _free_place(directory)
        made = make_directories(os.path.dirname(place))
        try:
            with hidden_directory(place) as staging:
                yield staging
                raise_if_stopped()
                os.rename(staging, place)
        except BaseException:
            remove_directories(made)
            raise
    except OutputError as error:
        if not staging or not (error.path or "").startswith(staging):
            raise
        # The error names a file in the hidden directory, which nobody asked for.
        raise _refusal(directory, *error.causes) from error
    # ValueError is how Python refuses a name with NUL, before any system call.
    except (OSError, ValueError) as error:
        raise _refusal(directory, error) from error


def _free_place(directory: str) -> str:
    """Return the path that may be renamed to.

    Raises:
        OSError: There is a file, or the path is none.
        OutputError: There is a directory that is not empty.
    """
    place = directory.rstrip("/")
    if not place:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    if os.path.isdir(place):
        if os.listdir(place):
            cause = "there is a directory that is not empty; name a new one"
            raise _refusal(directory, cause)
        return os.path.realpath(place)
    if os.path.lexists(place):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return place


def _refusal(directory: str, *causes: str | BaseException) -> OutputError:
    return OutputError(f"failed to write {directory}", *causes, path=directory)
