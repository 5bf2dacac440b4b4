"""The steering artifact: how a fitted direction is written, and strictly read again.

As JSON it is one compact object; each f32 has the fewest digits that read back to the
same f32. Unknown keys are ignored, so newer documents can be read. Its suffix may also
make it ``.safetensors``, ``.npz``, or a control vector of llama.cpp, ``.gguf``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ster.documents.control_vectors import (
    check_layers_have_slots,
    dump_control_vector,
    read_control_vector,
)
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
from ster.documents.formats import (
    GGUF,
    JSON,
    NPZ,
    SAFETENSORS,
    input_format,
    output_format,
)
from ster.documents.mix_ups import refuse_other_kinds
from ster.documents.steering_tensors import (
    parse_steering_tensors,
    write_steering_tensors,
)
from ster.documents.strict_json import JsonError, dump_json, read_document
from ster.documents.tensors.choice import opener_of
from ster.documents.tensors.parts import document_failures, read_tensors
from ster.documents.whole_files import AtomicFile, make_directories, remove_directories
from ster.errors import DocumentError, OutputError, name_path

F32 = npt.NDArray[np.float32]
FORMATS = (JSON, SAFETENSORS, NPZ, GGUF)
_UNREAD = "failed to read steering artifact"
_LARGEST_LAYER = 2**63 - 1


def read_artifact(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a steering artifact as the fields of a ``SteeringVector``.

    Raises:
        DocumentError: It cannot be read, or is no artifact that can steer.
    """
    form = input_format(path, FORMATS)
    unread, invalid = _UNREAD, "invalid steering artifact"
    if form == JSON:
        invalid = "invalid steering artifact JSON"
        return read_document(path, _parse, unread=_UNREAD, invalid=invalid)
    if form == GGUF:
        with document_failures(path, unread=unread, invalid=invalid):
            return _checked(read_control_vector(path))
    return read_tensors(
        path,
        opener_of(form),
        lambda file: _checked(parse_steering_tensors(file)),
        unread=unread,
        invalid=invalid,
    )


def check_suffix(path: str | os.PathLike[str], layers: tuple[int, ...] = ()) -> str:
    """Refuse a name whose format cannot hold a vector, and touch nothing.

    Args:
        path: Where the artifact shall be.
        layers: Those that it may have, as far as is known.

    Returns:
        The format: ``json``, ``safetensors``, ``npz`` or ``gguf``.

    Raises:
        OutputError: The suffix is another, or llama.cpp has no slot for a layer.
    """
    form = output_format(path, FORMATS)
    if form == GGUF:
        check_layers_have_slots(layers, name_path(path))
    return form


@contextmanager
def open_artifact(
    path: str | os.PathLike[str], layers: tuple[int, ...] = ()
) -> Iterator[Callable[[Mapping[str, object]], None]]:
    """Open the place of an artifact; it appears, whole, when the ``with`` ends.

    Args:
        path: Where it shall be.
        layers: Those that it may have, as far as is known.

    Yields:
        A function that writes the document, its keys in the order that they have.

    Raises:
        OutputError: It cannot be written. Then nothing is left behind.
    """
    form = check_suffix(path, layers)
    label = name_path(path)
    made = _make_parent(label)
    try:
        with AtomicFile(path) as file:
            yield lambda document: _write(file, document, form)
    except OutputError as error:
        remove_directories(made)
        sentence = f"failed to write steering artifact {label}"
        raise OutputError(sentence, *error.causes, path=path) from error
    except BaseException:
        remove_directories(made)
        raise


def _write(file: AtomicFile, document: Mapping[str, Any], form: str) -> None:
    if form == JSON:
        file.write(dump_json(document, file.path))
        return
    vectors = document["vectors"]
    layers = tuple(vector["layer"] for vector in vectors)
    arrays: dict[str, npt.NDArray[Any]] = {
        "directions": np.array([vector["values"] for vector in vectors], "<f4"),
        "train_margin": np.array([v["train_margin"] for v in vectors], "<f4"),
        "train_accuracy": np.array([v["train_accuracy"] for v in vectors], "<f4"),
    }
    if form == GGUF:
        file.write(dump_control_vector(document, layers, arrays, file.path))
        return
    if layers[-1] > _LARGEST_LAYER:
        sentence = f"layer {layers[-1]} is beyond what {form} holds"
        raise OutputError(f"failed to write {file.path}", sentence, layer=layers[-1])
    arrays = {"layers": np.array(layers, "<i8"), **arrays}
    write_steering_tensors(file.write, document, arrays, form, file.path)


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    if fields["layers"][0] < 0:
        raise JsonError("a layer is below zero")
    check_layers(fields["layers"], fields["array"])
    return fields


def check_layers(layers: tuple[int, ...], directions: F32) -> None:
    """Refuse layers out of order, and directions that do not point anywhere.

    Raises:
        DocumentError: A layer is repeated or unsorted, or its direction is not finite
            or all zeros.
    """
    for before, layer in pairwise(layers):
        if layer == before:
            raise DocumentError(f"layer {layer} is given twice", layer=layer)
        if layer < before:
            raise DocumentError(
                f"layer {layer} follows layer {before}; layers must ascend",
                layer=layer,
            )
    for layer, direction in zip(layers, directions, strict=True):
        if not np.isfinite(direction).all():
            sentence = f"layer {layer} contains a non-finite value"
            raise DocumentError(sentence, layer=layer)
        if not direction.any():
            raise DocumentError(f"layer {layer} contains only zeros", layer=layer)


def _make_parent(label: str) -> list[str]:
    parent = os.path.dirname(label)
    try:
        return make_directories(os.path.abspath(parent)) if parent else []
    except (OSError, ValueError) as error:
        raise OutputError(f"failed to create {parent}", error, path=parent) from error


def _parse(document: object) -> dict[str, Any]:
    """Check and convert a parsed artifact; JsonError where its form is wrong."""
    fields = require("the document", document, dict)
    refuse_other_kinds(fields, "vectors")
    check_provenance(fields)
    hidden_size = field(fields, "hidden_size", int)
    vectors = [
        require(f"vectors[{index}]", vector, dict)
        for index, vector in enumerate(field(fields, "vectors", list))
    ]
    provenance = {
        "model": field(fields, "model", str),
        "model_revision": optional_string(fields, "model_revision"),
        "precision": optional_string(fields, "precision"),
        "chat_template": optional_string(fields, "chat_template"),
        "trait_name": field(fields, "trait_name", str),
        "method": field(fields, "method", str),
        "metadata": _parse_metadata(fields),
    }
    return provenance | _parse_vectors(vectors, hidden_size)


def _parse_vectors(
    vectors: list[dict[str, object]], hidden_size: int
) -> dict[str, object]:
    if not vectors:
        raise DocumentError("artifact has no steering vectors")
    if hidden_size < 1:
        raise JsonError("`hidden_size` is below one")
    layers = tuple(_parse_layer(vector) for vector in vectors)
    rows = [
        parse_row(vector.get("values"), layer, hidden_size)
        for layer, vector in zip(layers, vectors, strict=True)
    ]
    directions = narrow(np.array(rows, dtype=np.float64))
    check_layers(layers, directions)
    return {
        "layers": layers,
        "array": directions,
        "train_margin": tuple(_parse_number(v, "train_margin") for v in vectors),
        "train_accuracy": tuple(_parse_number(v, "train_accuracy") for v in vectors),
    }


def _parse_layer(vector: dict[str, object]) -> int:
    layer = field(vector, "layer", int)
    if layer < 0:
        raise JsonError("`layer` is below zero")
    return layer


def _parse_number(vector: dict[str, object], name: str) -> np.float32:
    if name not in vector:
        raise JsonError(f"missing field `{name}`")
    value = vector[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise JsonError(f"`{name}` is no number")
    number: np.float32 = narrow(np.array([value], dtype=np.float64))[0]
    if not np.isfinite(number):
        layer = field(vector, "layer", int)
        sentence = f"layer {layer} contains a non-finite value"
        raise DocumentError(sentence, layer=layer, field=name, found=value)
    return number


def _parse_metadata(fields: dict[str, object]) -> dict[str, str]:
    if fields.get("metadata") is None:
        return {}
    metadata = field(fields, "metadata", dict)
    return {key: field(metadata, key, str) for key in metadata}


def artifact_header() -> dict[str, object]:
    """Return what every artifact begins with."""
    return {"schema_version": SCHEMA_VERSION, "product": PRODUCT}
