"""The activation artifact as JSON: schema 1, one row for each prompt.

One compact JSON object; each f32 has the fewest digits that read back to the same f32.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ster.documents.activations.description import Description
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
from ster.documents.mix_ups import refuse_other_kinds
from ster.documents.strict_json import JsonError, dump_json, read_document
from ster.documents.whole_files import AtomicFile
from ster.errors import DocumentError
from ster.text import quoted

F32 = npt.NDArray[np.float32]
_LAYER = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)


class JsonBody:
    """What stands in the file: a header, then a record for each prompt.

    Args:
        file: Where it is written.
        description: Of activations with one row for each prompt.

    Raises:
        OutputError: A text is no Unicode.
    """

    __slots__ = ("_file", "_keys", "_opening", "_prompts")

    def __init__(self, file: AtomicFile, description: Description) -> None:
        self._file = file
        self._prompts = description.prompts
        self._keys = [str(layer) for layer in description.layers]
        header = {
            "schema_version": SCHEMA_VERSION,
            "product": PRODUCT,
            "model": description.model,
            "model_revision": description.model_revision,
            "hidden_size": description.hidden_size,
            "records": [],
        }
        self._opening = dump_json(header, file.path).removesuffix(b"]}")

    def begin(self) -> None:
        """Write what stands before the records."""
        self._file.write(self._opening)

    def write(self, at: int, arrays: Sequence[F32]) -> None:
        """Append the records of some prompts, the first of them number ``at``."""
        for index, rows in enumerate(arrays[0], start=at):
            layers = dict(zip(self._keys, rows, strict=True))
            record = {"prompt": self._prompts[index], "layers": layers}
            text = dump_json(record, self._file.path)
            self._file.write(b"," + text if index else text)

    def finish(self) -> None:
        """Write what stands behind the records."""
        self._file.write(b"]}")

    def abort(self) -> None:
        """Write nothing more; nothing is held back."""


def read_json_document(path: str | os.PathLike[str]) -> Activations:
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


def _parse(document: object) -> Activations:
    """Check and convert a parsed artifact; JsonError where its form is wrong."""
    fields = require("the document", document, dict)
    refuse_other_kinds(fields, "records")
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
        read=None,
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
) -> F32:
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
