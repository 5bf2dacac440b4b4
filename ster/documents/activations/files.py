"""Documents of activations by suffix: ``.json``, ``.safetensors`` and ``.npz``."""

from __future__ import annotations

import os

import numpy as np

from ster.documents.activations.description import Description
from ster.documents.activations.json_document import JsonBody, read_json_document
from ster.documents.activations.tensor_document import (
    STORES,
    TensorBody,
    read_tensor_document,
)
from ster.documents.activations.value import Activations
from ster.documents.activations.writer import ActivationWriter, Body
from ster.documents.formats import JSON, NPZ, SAFETENSORS, input_format, output_format
from ster.documents.whole_files import AtomicFile
from ster.errors import DocumentError, OutputError, check_word, name_path
from ster.points import RESID_POST

FORMATS = (JSON, SAFETENSORS, NPZ)


def check_suffix(
    path: str | os.PathLike[str],
    *,
    points: tuple[str, ...] = (RESID_POST,),
    one_row: bool = True,
    store: str = "f32",
) -> str:
    """Refuse a name whose format cannot hold what shall be written, and touch nothing.

    Args:
        path: Where the document shall be.
        points: Those that are read.
        one_row: Whether each prompt has one row, as far as is known.
        store: ``f32`` or ``f16``.

    Returns:
        The format: ``json``, ``safetensors`` or ``npz``.

    Raises:
        OutputError: The suffix is another, or JSON cannot hold it.
        UsageError: ``store`` is another word.
    """
    form = output_format(path, FORMATS)
    check_word("store", store, (*STORES,))
    label = name_path(path)
    cause = None
    if form == JSON and (points != (RESID_POST,) or not one_row):
        cause = (
            f"a .json document holds one row for each prompt at the point {RESID_POST}"
        )
    elif form == JSON and store != "f32":
        cause = f"a .json document holds f32, not {store}"
    if cause is not None:
        way = f"{cause}; use .safetensors or .npz"
        raise OutputError(f"failed to write {label}", way, path=label)
    return form


def open_writer(
    path: str | os.PathLike[str], description: Description, *, store: str = "f32"
) -> ActivationWriter:
    """Make what writes a document row by row, in the format of its suffix.

    Args:
        path: Where the document shall be; nothing there is touched yet.
        description: Of the activations.
        store: ``f32``, or ``f16`` for half the bytes; not for JSON.

    Returns:
        A context manager with ``write``; the document appears, whole, when it ends.

    Raises:
        OutputError: The format cannot hold them, or a text or label of them.
        UsageError: ``store`` is another word.
    """
    one_row = np.array_equal(
        description.prompt_index, np.arange(len(description.prompts))
    )
    form = check_suffix(path, points=description.points, one_row=one_row, store=store)
    file = AtomicFile(path)
    body: Body
    try:
        if form == JSON:
            body = JsonBody(file, description)
        else:
            body = TensorBody(file, description, store, form)
    except DocumentError as error:
        sentence = f"failed to write {file.path}"
        raise OutputError(sentence, error, path=file.path) from error
    return ActivationWriter(file, description, body)


def save_activations(
    activations: Activations, path: str | os.PathLike[str], *, store: str = "f32"
) -> None:
    """Write a document, whole or not at all; see ``Activations.save``."""
    with open_writer(path, activations, store=store) as writer:
        writer.write(activations.array, *activations.others.values())


def load_activations(path: str | os.PathLike[str]) -> Activations:
    """Read a document of activations; see ``Activations.load``."""
    form = input_format(path, FORMATS)
    return (
        read_json_document(path) if form == JSON else read_tensor_document(path, form)
    )
