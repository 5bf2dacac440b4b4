"""Steering artifacts as safetensors and npz: directions beside what describes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ster import __version__
from ster.documents.fields import PRODUCT, SCHEMA_VERSION, require_texts
from ster.documents.strict_json import JsonError, dump_json, read_json
from ster.documents.tensors.choice import stream_parts
from ster.documents.tensors.kinds import check_kind
from ster.documents.tensors.parts import F32, I64, Bytes, Part, TensorFile
from ster.errors import DocumentError

DOCUMENT = "steering"
_TEXTS = ("model", "trait_name", "method")
_OPTIONAL = ("model_revision", "precision", "chat_template")
_NUMBERS = ("train_margin", "train_accuracy")


def write_steering_tensors(
    sink: Callable[[Bytes], None],
    document: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    form: str,
    label: str,
) -> None:
    """Write a steering artifact.

    Args:
        sink: Takes the bytes.
        document: The artifact's fields.
        arrays: Its ``layers``, ``directions``, ``train_margin``, ``train_accuracy``.
        form: ``safetensors`` or ``npz``.
        label: The file, for what is said when a text is no Unicode.

    Raises:
        OutputError: A text is no Unicode.
    """
    texts = {
        "product": PRODUCT,
        "schema_version": str(SCHEMA_VERSION),
        "document": DOCUMENT,
        **{
            name: document[name]
            for name in (*_TEXTS, *_OPTIONAL)
            if document.get(name) is not None
        },
        "metadata": dump_json(document["metadata"], label).decode(),
        "ster_version": __version__,
    }
    parts = [Part(name, array.dtype, array.shape) for name, array in arrays.items()]
    stream = stream_parts(form, sink, parts, texts, label)
    for part in parts:
        stream.begin(part)
        stream.write(arrays[part.name].tobytes())
    stream.finish()


def parse_steering_tensors(file: TensorFile) -> dict[str, Any]:
    """Read the fields of a ``SteeringVector``.

    Raises:
        JsonError: The form of the document is wrong.
        DocumentError: It is of another product, schema or kind.
    """
    check_kind(file.metadata, DOCUMENT)
    shape = file.part("directions").shape
    if len(shape) != 2 or 0 in shape:
        raise JsonError(f"`directions` has the shape {shape}")
    texts = {name: file.text(name) for name in _TEXTS}
    metadata = read_json(file.text("metadata").encode())
    return {
        **texts,
        **{name: file.metadata.get(name) for name in _OPTIONAL},
        "layers": tuple(file.take("layers", I64, shape=shape[:1]).tolist()),
        "array": file.take("directions", F32, shape=shape),
        **{name: _read_numbers(file, name, shape[:1]) for name in _NUMBERS},
        "metadata": require_texts("`metadata`", metadata),
    }


def _read_numbers(
    file: TensorFile, name: str, shape: tuple[int, ...]
) -> tuple[np.float32, ...]:
    numbers = file.take(name, F32, shape=shape)
    if not np.isfinite(numbers).all():
        raise DocumentError(f"`{name}` contains a non-finite value", field=name)
    return tuple(numbers)
