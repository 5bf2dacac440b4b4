"""JSON read strictly, and files that appear whole or not at all.

Every document goes through here, so each is refused and written in the same way.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import BinaryIO, Self, TypeVar

import orjson

from ster.errors import DocumentError, OutputError
from ster.stopping import raise_if_stopped
from ster.text import quoted

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Nothing here follows a backslash or is a quote or a colon, so strings stay strings.
_NO_PART_OF_A_KEY_COUNT = b"0123456789.,-+eE[]{} \t\r\n"
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


Parsed = TypeVar("Parsed")


class JsonError(ValueError):
    """Data that is no strict JSON, or a document that lacks the form it should have."""


def read_json(data: bytes) -> object:
    """Read one JSON document, with nothing let pass that the format does not have.

    Args:
        data: UTF-8, with or without a byte order mark.

    Raises:
        JsonError: No strict JSON, a number too large for a float, a lone surrogate or
            a key given twice; the message is one line.
    """
    text = data.removeprefix(_BYTE_ORDER_MARK)
    try:
        document: object = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise JsonError(_describe(error, text)) from None
    if _count_keys(document) != _count_colons(text):
        raise JsonError(_name_repeated_key(text))
    return document


def _describe(error: orjson.JSONDecodeError, text: bytes) -> str:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as invalid:
        return f"invalid UTF-8 at byte {invalid.start}"
    return f"{error.msg} at line {error.lineno} column {error.colno}"


def _count_keys(document: object) -> int:
    count = 0
    pending = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            count += len(value)
            pending += value.values()
        elif isinstance(value, list):
            pending += [item for item in value if type(item) in (dict, list)]
    return count


def _count_colons(text: bytes) -> int:
    """Count the keys as they stand in the text, where a repeated one counts again."""
    skeleton = text.translate(None, _NO_PART_OF_A_KEY_COUNT)
    return _STRING.sub(b"", skeleton).count(b":")


def _name_repeated_key(text: bytes) -> str:
    try:
        json.loads(text, object_pairs_hook=_refuse_repeated_key, parse_int=float)
    except JsonError as error:
        return str(error)
    except RecursionError:
        pass
    return "a key is given twice"


def _refuse_repeated_key(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for key, value in pairs:
        if key in fields:
            raise JsonError(f"key {quoted(key)} is given twice")
        fields[key] = value
    return fields


def read_document(
    path: str | os.PathLike[str],
    parse: Callable[[object], Parsed],
    *,
    unread: str,
    invalid: str,
) -> Parsed:
    """Read a JSON file strictly and turn it into what it stands for.

    Args:
        path: The file.
        parse: Takes the document; raises ``JsonError`` where its form is wrong.
        unread: The refusal of a file that cannot be read, its path left out.
        invalid: The refusal of anything else, likewise.

    Raises:
        DocumentError: One of these two.
    """
    label = os.fspath(path)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (OSError, ValueError) as error:
        raise DocumentError(f"{unread} {label}", error) from error
    try:
        return parse(read_json(data))
    except JsonError as error:
        raise DocumentError(f"{invalid} in {label}", error) from error


def dump_json(document: object, path: str) -> bytes:
    """Write a document compactly, f32 arrays in their shortest digits.

    Raises:
        OutputError: A text in it is no Unicode; ``path`` is where it was to go.
    """
    try:
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError as error:
        # A path on the command line need not be UTF-8, and JSON must be.
        raise OutputError(f"failed to write {path}", error) from error


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
