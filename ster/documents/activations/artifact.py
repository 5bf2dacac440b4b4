"""The activation artifact: what an extraction writes and a notebook reads again.

One compact JSON object; each f32 has the fewest digits that read back to the same f32.
Writing holds one prompt's rows at a time, so a document may be larger than memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from ster.documents.activations.value import Activations
from ster.documents.fields import (
    PRODUCT,
    SCHEMA_VERSION,
    check_provenance,
    field,
    optional_string,
    parse_row,
    require,
)
from ster.documents.float32 import narrow
from ster.documents.strict_json import (
    JsonError,
    check_json_name,
    dump_json,
    read_document,
)
from ster.documents.whole_files import AtomicFile
from ster.errors import DocumentError, NumericsError, OutputError
from ster.text import quoted

Float32Array = npt.NDArray[np.float32]
_NUMPY_WAY = "numpy.savez takes activations.array, and safetensors.numpy.save_file too"
_LAYER = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)


class ActivationWriter:
    """Write an activation artifact record by record; it appears when the ``with`` ends.

    Args:
        path: Where the document shall be.
        model: The ``--model`` value, exactly as given.
        model_revision: The Hub commit or the given revision, None where there is none.
        hidden_size: The width of every row.

    Raises:
        OutputError: At any step, when the document cannot be written.
    """

    __slots__ = ("_file", "_hidden_size", "_model", "_num_records", "_revision")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        model: str,
        model_revision: str | None,
        hidden_size: int,
    ) -> None:
        check_json_name(path, _NUMPY_WAY)
        self._file = AtomicFile(path)
        self._model = model
        self._revision = model_revision
        self._hidden_size = hidden_size
        self._num_records = 0

    def __enter__(self) -> Self:
        """Open the document and write what stands before the records."""
        header = {
            "schema_version": SCHEMA_VERSION,
            "product": PRODUCT,
            "model": self._model,
            "model_revision": self._revision,
            "hidden_size": self._hidden_size,
            "records": [],
        }
        opening = dump_json(header, self._file.path).removesuffix(b"]}")
        self._file.__enter__()
        self._file.write(opening)
        return self

    def write(self, prompt: str, layers: Sequence[int], rows: Float32Array) -> None:
        """Append the record of one prompt.

        Args:
            prompt: The prompt, verbatim.
            layers: The layer of each row, in any order.
            rows: The activations, (num_layers, hidden_size).

        Raises:
            NumericsError: A value is infinite or not a number.
        """
        if rows.shape != (len(layers), self._hidden_size):
            shape = f"{len(layers)} layers of width {self._hidden_size}"
            raise self._failure(f"rows of shape {rows.shape} for {shape}")
        table = _as_float32(rows)
        self._check_finite(layers, table)
        order = sorted(range(len(layers)), key=layers.__getitem__)
        by_layer = {str(layers[row]): table[row] for row in order}
        if len(by_layer) != len(layers):
            raise self._failure("a layer is given twice")
        record = dump_json({"prompt": prompt, "layers": by_layer}, self._file.path)
        self._file.write(b"," + record if self._num_records else record)
        self._num_records += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish the document, or after an error leave the place as it was."""
        if kind is not None:
            self._file.__exit__(kind, error, trace)
            return
        with ExitStack() as stack:
            stack.push(self._file)
            self._file.write(b"]}")

    def _check_finite(self, layers: Sequence[int], rows: Float32Array) -> None:
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            layer = layers[int(finite.argmin())]
            prompt = self._num_records + 1
            sentence = f"layer {layer} of prompt {prompt} is not finite"
            raise NumericsError(sentence, layer=layer, prompt=prompt)

    def _failure(self, cause: str | BaseException) -> OutputError:
        path = self._file.path
        return OutputError(f"failed to write {path}", cause, path=path)


def read_artifact(path: str | os.PathLike[str]) -> Activations:
    """Read an activation artifact, every value as the f32 that was written.

    Raises:
        DocumentError: It cannot be read or is no activation artifact.
    """
    return read_document(
        path,
        _parse,
        unread="failed to read activation artifact",
        invalid="invalid activation artifact JSON",
    )


def _as_float32(rows: npt.NDArray[np.floating]) -> Float32Array:
    # What is too large for f32 becomes infinite, and is refused as such.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(rows, dtype=np.float32)


def _parse(document: object) -> Activations:
    """Check and convert a parsed artifact; JsonError where its form is wrong."""
    fields = require("the document", document, dict)
    check_provenance(fields)
    hidden_size = field(fields, "hidden_size", int)
    records = [
        require(f"records[{index}]", record, dict)
        for index, record in enumerate(field(fields, "records", list))
    ]
    if not records:
        raise DocumentError("artifact has no records")
    layers = _parse_layers(field(records[0], "layers", dict))
    return Activations(
        array=np.stack([_parse_rows(r, layers, hidden_size) for r in records]),
        layers=layers,
        prompts=tuple(field(record, "prompt", str) for record in records),
        model=field(fields, "model", str),
        model_revision=optional_string(fields, "model_revision"),
        hidden_size=hidden_size,
    )


def _parse_layers(by_layer: dict[str, object]) -> tuple[int, ...]:
    if not by_layer:
        raise DocumentError("artifact has no layers")
    for key in by_layer:
        if not _LAYER.fullmatch(key):
            raise JsonError(f"layer {quoted(key)} is no index")
    return tuple(sorted(map(int, by_layer)))


def _parse_rows(
    record: dict[str, object], layers: tuple[int, ...], hidden_size: int
) -> Float32Array:
    by_layer = field(record, "layers", dict)
    if by_layer.keys() != set(map(str, layers)):
        raise DocumentError("artifact records differ in their layers")
    rows = [parse_row(by_layer[str(layer)], layer, hidden_size) for layer in layers]
    table = narrow(np.array(rows, dtype=np.float64))
    finite = np.isfinite(table).all(axis=1)
    if not finite.all():
        layer = layers[int(finite.argmin())]
        raise DocumentError(f"layer {layer} contains a non-finite value", layer=layer)
    return table
