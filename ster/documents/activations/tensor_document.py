"""Activations as safetensors or npz: the rows stream in behind what describes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ster.documents.activations.columns import (
    columns_of,
    metadata_of,
    parse_description,
    part_names,
)
from ster.documents.activations.description import Description
from ster.documents.activations.value import Activations
from ster.documents.activations.writer import place_of
from ster.documents.float32 import find_not_finite
from ster.documents.tensors.choice import opener_of, stream_parts
from ster.documents.tensors.parts import (
    F16,
    F32,
    Part,
    TensorFile,
    read_tensors,
)
from ster.documents.whole_files import AtomicFile
from ster.errors import DocumentError, NumericsError, OutputError

STORES: dict[str, np.dtype[Any]] = {"f32": F32, "f16": F16}
_PIECE_BYTES = 2**20
Rows = npt.NDArray[np.float32]


class TensorBody:
    """What stands in the file: columns, texts, then the rows of each point.

    The rows of one point stand together. Those of the first go straight into the file,
    those of others wait in unnamed files beside it.

    Args:
        file: Where it is written.
        description: Of the activations.
        store: ``f32`` or ``f16``.
        form: ``safetensors`` or ``npz``.

    Raises:
        OutputError: What describes the rows cannot be written.
        DocumentError: A label has a value that JSON does not have.
    """

    __slots__ = (
        *("_columns", "_described", "_dtype", "_file", "_rows"),
        *("_spools", "_to"),
    )

    def __init__(
        self, file: AtomicFile, description: Description, store: str, form: str
    ) -> None:
        self._file = file
        self._described = description
        self._dtype = STORES[store]
        names = part_names(description.points)
        self._rows = [Part(name, self._dtype, description.shape) for name in names]
        self._columns = columns_of(description, file.path)
        parts = [*(part for part, _ in self._columns), *self._rows]
        metadata = metadata_of(description, store)
        self._to = stream_parts(form, file.write, parts, metadata, file.path)
        self._spools: list[IO[bytes]] = []

    def begin(self) -> None:
        """Write what describes the rows, and begin those of the first point."""
        # Late, as most runs read one point.
        from tempfile import TemporaryFile

        beside = os.path.dirname(os.path.realpath(self._file.path))
        try:
            for _ in self._rows[1:]:
                self._spools.append(TemporaryFile(dir=beside))  # noqa: SIM115
        except OSError as error:
            raise self._failure(error) from error
        for part, data in self._columns:
            self._to.begin(part)
            self._to.write(data)
        self._to.begin(self._rows[0])

    def write(self, at: int, arrays: Sequence[Rows]) -> None:
        """Append rows of each point, the first of them number ``at``."""
        first, *others = [self._stored(at, rows) for rows in arrays]
        self._to.write(first)
        try:
            for spool, data in zip(self._spools, others, strict=True):
                spool.write(data)
        except OSError as error:
            raise self._failure(error) from error

    def finish(self) -> None:
        """Append the rows of the other points, and end the file."""
        for part, spool in zip(self._rows[1:], self._spools, strict=True):
            self._to.begin(part)
            try:
                spool.seek(0)
            except OSError as error:  # what was buffered is written now
                raise self._failure(error) from error
            while piece := spool.read(_PIECE_BYTES):
                self._to.write(piece)
        self._to.finish()
        self._close_spools()

    def abort(self) -> None:
        """Write nothing more, and let go of what waits."""
        self._to.abort()
        self._close_spools()

    def _stored(self, at: int, rows: Rows) -> memoryview:
        with np.errstate(over="ignore"):  # what overflows is refused
            stored = np.ascontiguousarray(rows, dtype=self._dtype)
        if self._dtype != F32:
            found = find_not_finite(stored)
            if found is not None:
                row, column = found
                layer, prompt = place_of(self._described, at + row, column)
                sentence = f"layer {layer} of prompt {prompt} does not fit in f16"
                cause = "a value is beyond 65504; store f32, which holds it"
                raise NumericsError(sentence, cause, layer=layer, prompt=prompt)
        return stored.reshape(-1).view(np.uint8).data

    def _close_spools(self) -> None:
        while self._spools:
            self._spools.pop().close()

    def _failure(self, cause: OSError) -> OutputError:
        path = self._file.path
        return OutputError(f"failed to write {path}", cause, path=path)


def read_tensor_document(path: str | os.PathLike[str], form: str) -> Activations:
    """Read activations, every value as it was written; f16 becomes f32.

    Raises:
        DocumentError: It cannot be read or holds no activations.
    """
    return read_tensors(
        path,
        opener_of(form),
        _parse,
        unread="failed to read activation artifact",
        invalid="invalid activation artifact",
    )


def _parse(file: TensorFile) -> Activations:
    fields = parse_description(file)
    points = fields["points"]
    names = part_names(points)
    shape = file.part(names[0]).shape
    arrays = [_read_rows(file, name, fields["layers"], shape) for name in names]
    others = dict(zip(points[1:], arrays[1:], strict=True))
    return Activations(array=arrays[0], others=others, **fields)


def _read_rows(
    file: TensorFile, name: str, layers: tuple[int, ...], shape: tuple[int, ...]
) -> Rows:
    rows: Rows = file.take(name, F32, F16, shape=shape).astype(np.float32, copy=False)
    finite = np.isfinite(rows).all(axis=(0, 2))
    if not finite.all():
        layer = layers[int(finite.argmin())]
        raise DocumentError(f"layer {layer} contains a non-finite value", layer=layer)
    return rows
