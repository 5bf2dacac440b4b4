"""Writing activations row by row into a document that appears when it is whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from ster.documents.activations.description import Description
from ster.documents.float32 import find_not_finite
from ster.documents.whole_files import AtomicFile
from ster.errors import NumericsError, OutputError
from ster.text import counted

F32 = npt.NDArray[np.float32]


class Body(Protocol):
    """What a format puts into the file, which is open from ``begin`` on."""

    def begin(self) -> None:
        """Write what stands before the rows."""

    def write(self, at: int, arrays: Sequence[F32]) -> None:
        """Append rows of each point, the first of them number ``at``."""

    def finish(self) -> None:
        """Write what stands behind the rows, once all have come."""

    def abort(self) -> None:
        """Write nothing more, and let go of what is held."""


class ActivationWriter:
    """Write activations as they come; the document appears when the ``with`` ends.

    Memory does not grow with the number of rows. ``files.open_writer`` makes one.

    Args:
        file: The document's place, not yet opened.
        description: Of the activations.
        body: Their format.

    Raises:
        OutputError: At any step, when the document cannot be written.
    """

    __slots__ = ("_body", "_description", "_file", "_num_written")

    def __init__(self, file: AtomicFile, description: Description, body: Body) -> None:
        self._file = file
        self._description = description
        self._body = body
        self._num_written = 0

    def __enter__(self) -> Self:
        """Open the document and write what stands before the rows."""
        self._file.__enter__()
        self._or_leave_nothing(self._body.begin)
        return self

    def write(self, *arrays: npt.NDArray[np.floating[Any]]) -> None:
        """Append the next rows.

        Args:
            arrays: One for each point, (num_rows, num_layers, hidden_size), in the
                order of the rows; as many of them at a time as is convenient.

        Raises:
            NumericsError: A value is infinite or not a number.
        """
        described = self._description
        shape = arrays[0].shape[:1] + described.shape[1:] if arrays else ()
        if {array.shape for array in arrays} != {shape} or len(arrays) != len(
            described.points
        ):
            found = ", ".join(str(array.shape) for array in arrays)
            points = counted(len(described.points), "point")
            raise self._failure(
                f"rows of shape {found or 'none'} for {points} of {described.shape}"
            )
        if self._num_written + len(arrays[0]) > described.num_rows:
            raise self._failure(f"there are more rows than {described.num_rows}")
        tables = [_as_float32(array) for array in arrays]
        for table in tables:
            self._check_finite(table)
        self._body.write(self._num_written, tables)
        self._num_written += len(arrays[0])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish the document, or after an error leave the place as it was."""
        if kind is not None:
            self._body.abort()
            self._file.__exit__(kind, error, trace)
            return
        self._or_leave_nothing(self._finish)
        self._file.__exit__(None, None, None)

    def _finish(self) -> None:
        expected = self._description.num_rows
        if self._num_written != expected:
            found = counted(self._num_written, "row")
            raise self._failure(f"{found} came of {expected}")
        self._body.finish()

    def _or_leave_nothing(self, step: Callable[[], None]) -> None:
        with ExitStack() as stack:
            stack.push(self._file)
            stack.callback(self._body.abort)
            step()
            stack.pop_all()

    def _check_finite(self, rows: F32) -> None:
        found = find_not_finite(rows)
        if found is not None:
            row, column = found
            place = place_of(self._description, self._num_written + row, column)
            layer, prompt = place
            sentence = f"layer {layer} of prompt {prompt} is not finite"
            raise NumericsError(sentence, layer=layer, prompt=prompt)

    def _failure(self, cause: str | BaseException) -> OutputError:
        path = self._file.path
        return OutputError(f"failed to write {path}", cause, path=path)


def place_of(description: Description, row: int, column: int) -> tuple[int, int]:
    """Name the layer and the prompt, counted from 1, of a row's column."""
    prompt = int(description.prompt_index[row]) + 1
    return description.layers[column], prompt


def _as_float32(rows: npt.NDArray[np.floating[Any]]) -> F32:
    # What is too large for f32 becomes infinite, and is refused as such.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(rows, dtype=np.float32)
