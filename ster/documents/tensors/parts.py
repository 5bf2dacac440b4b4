"""What files of named arrays have in common: parts that are announced and then come."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ster.documents.strict_json import JsonError, read_json
from ster.errors import DocumentError, SterError

Array = npt.NDArray[Any]
Bytes = bytes | memoryview
Parsed = TypeVar("Parsed")
# Both formats are little-endian; these are the types of ster's documents.
F32, F16 = np.dtype("<f4"), np.dtype("<f2")
I64, U8 = np.dtype("<i8"), np.dtype("u1")


@dataclass(frozen=True, slots=True)
class Part:
    """One array of a file: its name, its type and its shape."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """How many bytes its values take."""
        return math.prod(self.shape) * self.dtype.itemsize


class PartStream(Protocol):
    """Writes the parts of a file, one after the other, in the order announced."""

    def begin(self, part: Part) -> None:
        """Begin the next part."""

    def write(self, data: Bytes) -> None:
        """Append values of the part that was begun."""

    def finish(self) -> None:
        """End the file when every part is complete."""

    def abort(self) -> None:
        """Write nothing more."""


@dataclass(frozen=True, slots=True)
class TensorFile:
    """An open file of named arrays, none of which is read before it is taken.

    Args:
        metadata: Its texts by name.
        parts: Its arrays, without those of types that numpy does not have.
        read: Reads one of them.
    """

    metadata: dict[str, str]
    parts: dict[str, Part]
    read: Callable[[Part], Array]

    def take(self, name: str, *dtypes: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Read an array that must have one of these types and this shape.

        Raises:
            JsonError: It is missing or another.
        """
        part = self.part(name)
        if part.dtype not in dtypes or part.shape != shape:
            wanted = " or ".join(str(dtype) for dtype in dtypes)
            raise JsonError(
                f"`{name}` is {part.dtype} {part.shape}, expected {wanted} {shape}"
            )
        return self.read(part)

    def take_column(self, name: str, dtype: np.dtype[Any]) -> Array:
        """Read an array of one axis, whatever its length.

        Raises:
            JsonError: It is missing or another.
        """
        part = self.part(name)
        return self.take(name, dtype, shape=(math.prod(part.shape),))

    def take_json(self, name: str) -> object:
        """Read what stands as JSON in an array of bytes.

        Raises:
            JsonError: It is missing or no JSON.
        """
        return read_json(self.take_column(name, U8).tobytes())

    def part(self, name: str) -> Part:
        """Return what an array is announced as, or raise JsonError."""
        if name not in self.parts:
            raise JsonError(f"it has no array `{name}` that ster reads")
        return self.parts[name]

    def text(self, name: str) -> str:
        """Return a text of the metadata, or raise JsonError."""
        if name not in self.metadata:
            raise JsonError(f"its metadata have no `{name}`")
        return self.metadata[name]


Opener = Callable[[str | os.PathLike[str]], AbstractContextManager[TensorFile]]


def read_tensors(
    path: str | os.PathLike[str],
    opener: Opener,
    parse: Callable[[TensorFile], Parsed],
    *,
    unread: str,
    invalid: str,
) -> Parsed:
    """Read a file of named arrays strictly and turn it into what it stands for.

    Args:
        path: The file.
        opener: Opens it.
        parse: Takes its arrays; raises ``JsonError`` where its form is wrong.
        unread: The sentence for a file that cannot be read, without its path.
        invalid: The sentence for any other fault of the file, without its path.

    Raises:
        DocumentError: With one of these two sentences, or what ``parse`` raises.
    """
    with document_failures(path, unread=unread, invalid=invalid), opener(path) as file:
        return parse(file)


@contextmanager
def document_failures(
    path: str | os.PathLike[str], *, unread: str, invalid: str
) -> Iterator[None]:
    """Turn what goes wrong in reading a document into a sentence about it."""
    label = os.fsdecode(path)
    try:
        yield
    except JsonError as error:
        raise DocumentError(f"{invalid} {label}", error, path=path) from error
    except (OSError, ValueError) as error:
        raise DocumentError(f"{unread} {label}", error, path=path) from error
    except MemoryError as error:
        cause = "it does not fit in memory"
        raise DocumentError(f"{unread} {label}", cause, path=path) from error
    except SterError as error:
        error.path = error.path or label
        raise
