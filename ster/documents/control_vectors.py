"""Steering vectors as GGUF control vectors, the format of llama.cpp and repeng.

**Numbering.** ``direction.N`` is what ster adds at layer N: both count blocks from 0,
and both add after block N, before the next one. Nothing is shifted. (llama.cpp's loader
puts ``direction.N`` at N - 1 of its buffer, and takes it from N - 1 for block N; repeng
writes the index of the block that it wrapped, from 0.) llama.cpp has no slot for block
0 and refuses a file with ``direction.0``, so a vector with layer 0 cannot be written.

What llama.cpp has no word for stands in keys that begin with ``ster.``, which other
readers ignore. A file without them comes from elsewhere: it says for which architecture
it is, but not for which model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from ster import __version__
from ster.documents.fields import SCHEMA_VERSION, check_schema, require_texts
from ster.documents.gguf import ARCHITECTURE, GgufFile, Value, dump_gguf, read_gguf
from ster.documents.strict_json import JsonError, dump_json, read_json
from ster.errors import DocumentError, OutputError
from ster.text import quoted

F32 = npt.NDArray[np.float32]
# How a vector that came from elsewhere was fitted: nobody says.
FOREIGN_METHOD = "gguf"
_ARCHITECTURE = "controlvector"
_HINT, _COUNT = f"{_ARCHITECTURE}.model_hint", f"{_ARCHITECTURE}.layer_count"
_DIRECTION = re.compile(r"direction\.(0|[1-9][0-9]{0,8})", re.ASCII)
_LARGEST_LAYER = 10**9 - 1
_OPTIONAL = ("model_revision", "precision", "chat_template")


def check_layers_have_slots(layers: tuple[int, ...], label: str) -> None:
    """Refuse layers that llama.cpp has no slot for.

    Raises:
        OutputError: One of them is 0, or beyond every model.
    """
    for layer in layers:
        if not 0 < layer <= _LARGEST_LAYER:
            raise OutputError(
                f"failed to write {label}",
                f"a GGUF control vector has no slot for layer {layer}; llama.cpp adds "
                "after block 1 and later ones, so leave that layer out of the "
                "vector's layers",
                path=label,
                field="layers",
                layer=layer,
            )


def dump_control_vector(
    document: Mapping[str, Any],
    layers: tuple[int, ...],
    arrays: Mapping[str, F32],
    label: str,
) -> bytes:
    """Write a steering artifact as a control vector.

    Args:
        document: The artifact's fields.
        layers: Its layers.
        arrays: Its ``directions``, ``train_margin`` and ``train_accuracy``.
        label: The file, for what is said when something cannot be written.

    Raises:
        OutputError: It has layer 0, or a text is no Unicode.
    """
    check_layers_have_slots(layers, label)
    known = {
        f"ster.{name}": document[name]
        for name in ("model", *_OPTIONAL, "trait_name", "method")
        if document.get(name) is not None
    }
    fields: dict[str, str | int | F32] = {
        ARCHITECTURE: _ARCHITECTURE,
        "general.name": document["trait_name"],
        _HINT: document["model"],
        _COUNT: len(layers),
        "ster.schema_version": SCHEMA_VERSION,
        "ster.version": __version__,
        **known,
        "ster.metadata": dump_json(document["metadata"], label).decode(),
        "ster.train_margin": arrays["train_margin"],
        "ster.train_accuracy": arrays["train_accuracy"],
    }
    directions = zip(layers, arrays["directions"], strict=True)
    tensors = {f"direction.{layer}": values for layer, values in directions}
    try:
        return dump_gguf(fields, tensors)
    except UnicodeEncodeError as error:
        raise OutputError(f"failed to write {label}", error, path=label) from error


def read_control_vector(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a control vector as the fields of a ``SteeringVector``.

    Raises:
        OSError: It cannot be read.
        JsonError: It is no control vector.
        DocumentError: It has a direction for layer 0, or is of another schema.
    """
    file = read_gguf(path, _ARCHITECTURE)
    layers = tuple(sorted(map(_parse_layer, file.tensors)))
    rows = [file.tensors[f"direction.{layer}"] for layer in layers]
    for layer, row in zip(layers, rows, strict=True):
        if len(row) != len(rows[0]):
            raise DocumentError(
                f"layer {layer} has vector width {len(row)}, expected {len(rows[0])}",
                layer=layer,
            )
    if not rows:
        raise DocumentError("artifact has no steering vectors")
    directions = {"layers": layers, "array": np.array(rows, np.float32)}
    if "ster.schema_version" in file.fields:
        return directions | _parse_own(file, len(layers))
    return directions | _describe_foreign(file, path)


def _parse_layer(name: str) -> int:
    found = _DIRECTION.fullmatch(name)
    if found is None:
        raise JsonError(f"the tensor {quoted(name)} is no direction.N")
    layer = int(found[1])
    if layer == 0:
        sentence = "a control vector has no direction.0; llama.cpp refuses it too"
        raise DocumentError(sentence, layer=0)
    return layer


def _parse_own(file: GgufFile, num_layers: int) -> dict[str, Any]:
    check_schema(file.fields["ster.schema_version"])
    metadata = read_json(_text(file, "ster.metadata").encode())
    return {
        "model": _text(file, "ster.model"),
        "trait_name": _text(file, "ster.trait_name"),
        "method": _text(file, "ster.method"),
        **{
            name: _text(file, f"ster.{name}")
            for name in _OPTIONAL
            if f"ster.{name}" in file.fields
        },
        "train_margin": _numbers(file, "ster.train_margin", num_layers),
        "train_accuracy": _numbers(file, "ster.train_accuracy", num_layers),
        "metadata": require_texts("`ster.metadata`", metadata),
    }


def _describe_foreign(file: GgufFile, path: str | os.PathLike[str]) -> dict[str, Any]:
    def say(key: str, otherwise: str) -> str:
        value: Value = file.fields.get(key)
        return value if isinstance(value, str) else otherwise

    return {
        "model": say(_HINT, ""),
        "trait_name": say("general.name", PurePath(os.fsdecode(path)).stem),
        "method": FOREIGN_METHOD,
    }


def _text(file: GgufFile, key: str) -> str:
    value = file.fields.get(key)
    if not isinstance(value, str):
        raise JsonError(f"`{key}` is no string")
    return value


def _numbers(file: GgufFile, key: str, count: int) -> tuple[np.float32, ...]:
    numbers = file.fields.get(key)
    if not isinstance(numbers, np.ndarray) or len(numbers) != count:
        raise JsonError(f"`{key}` is not one number for each layer")
    if not np.isfinite(numbers).all():
        raise DocumentError(f"`{key}` contains a non-finite value")
    return tuple(numbers)
