"""What stands beside the rows in a binary document: arrays, texts and metadata.

Texts are JSON in arrays of bytes, so that numpy or safetensors alone can read them:
``json.loads(bytes(file["prompts"]))``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ster import __version__
from ster.documents.activations.description import Description
from ster.documents.activations.labels import parse_labels, plain_labels
from ster.documents.activations.read_tokens import ReadTokens
from ster.documents.fields import PRODUCT, SCHEMA_VERSION, require
from ster.documents.strict_json import JsonError, dump_json, read_json
from ster.documents.tensors.kinds import check_kind
from ster.documents.tensors.parts import I64, U8, Array, Part, TensorFile
from ster.errors import OutputError

ACTIVATIONS = "activations"
_ALIGNMENT = 8


def part_names(points: tuple[str, ...]) -> list[str]:
    """Name the array of each point."""
    if len(points) == 1:
        return [ACTIVATIONS]
    return [f"{ACTIVATIONS}.{point}" for point in points]


def metadata_of(description: Description, store: str) -> dict[str, str]:
    """Return the metadata; what is not known is left out."""
    known = {
        "product": PRODUCT,
        "schema_version": str(SCHEMA_VERSION),
        "document": ACTIVATIONS,
        "model": description.model,
        "model_revision": description.model_revision,
        "precision": description.precision,
        "chat_template": description.chat_template,
        "tokens": description.read,
        "points": ",".join(description.points),
        "store": store,
        "steered": _spell(description.steered),
        "ster_version": __version__,
    }
    return {name: text for name, text in known.items() if text is not None}


def _spell(steered: tuple[str, ...]) -> str | None:
    return dump_json(steered, ACTIVATIONS).decode() if steered else None


def columns_of(description: Description, label: str) -> list[tuple[Part, bytes]]:
    """Return every array but the rows, in the order of the file.

    The wide ones come first, and the last text is filled up with spaces, so that the
    rows behind them are aligned.

    Raises:
        OutputError: A text is no Unicode, or rows of a prompt do not stand together.
        DocumentError: A label has a value that JSON does not have.
    """
    index, tokens = description.prompt_index, description.tokens
    if (np.diff(index) < 0).any():
        raise OutputError(
            f"failed to write {label}",
            "the rows are not in the order of their prompts; "
            "activations[numpy.argsort(activations.prompt_index, kind='stable')] are",
            path=label,
        )
    rows = np.arange(len(description.prompts) + 1)
    arrays: dict[str, Array] = {
        "layers": np.array(description.layers, I64),
        "offsets": np.searchsorted(index, rows).astype(I64),
        "prompt_index": index.astype(I64),
    }
    texts: dict[str, object] = {
        "prompts": description.prompts,
        "labels": plain_labels(description.labels),
    }
    if tokens is not None:
        arrays |= {
            "token_position": tokens.position.astype(I64),
            "token_id": tokens.token_id.astype(I64),
            "num_tokens": tokens.num_tokens.astype(I64),
            "num_bos": tokens.num_bos.astype(I64),
            "in_template": tokens.in_template.astype(U8),
        }
        texts["token_text"] = tokens.text
    written = {name: dump_json(text, label) for name, text in texts.items()}
    taken = sum(array.nbytes for array in arrays.values())
    last = next(reversed(written))
    written[last] += b" " * (-(taken + sum(map(len, written.values()))) % _ALIGNMENT)
    columns = [
        (Part(name, array.dtype, array.shape), array.tobytes())
        for name, array in arrays.items()
    ]
    return columns + [
        (Part(name, U8, (len(text),)), text) for name, text in written.items()
    ]


def parse_description(file: TensorFile) -> dict[str, Any]:
    """Read the fields of a ``Description``.

    Raises:
        JsonError: The form of the document is wrong.
        DocumentError: It is of another product, schema or kind.
    """
    check_kind(file.metadata, ACTIVATIONS)
    points = tuple(file.text("points").split(","))
    first = file.part(part_names(points)[0])
    if len(first.shape) != 3:
        raise JsonError(f"`{first.name}` has {len(first.shape)} axes, expected 3")
    num_rows, num_layers, hidden_size = first.shape
    prompts = _texts(file, "prompts")
    index = file.take("prompt_index", I64, shape=(num_rows,))
    offsets = file.take("offsets", I64, shape=(len(prompts) + 1,))
    if not np.array_equal(np.searchsorted(index, np.arange(len(offsets))), offsets):
        raise JsonError("`offsets` and `prompt_index` say different things")
    if num_rows and not 0 <= index[0] <= index[-1] < len(prompts):
        raise JsonError("a row belongs to no prompt")
    tokens = _parse_tokens(file, index, len(prompts))
    if tokens is None and not np.array_equal(index, np.arange(len(prompts))):
        raise JsonError("it does not say which tokens its rows are")
    return {
        "layers": tuple(file.take("layers", I64, shape=(num_layers,)).tolist()),
        "prompts": prompts,
        "model": file.text("model"),
        "model_revision": file.metadata.get("model_revision"),
        "hidden_size": hidden_size,
        "points": points,
        "read": file.metadata.get("tokens"),
        "tokens": tokens,
        "labels": parse_labels(file.take_json("labels")),
        "precision": file.metadata.get("precision"),
        "chat_template": file.metadata.get("chat_template"),
        "steered": _parse_steered(file.metadata.get("steered")),
    }


def _parse_tokens(
    file: TensorFile, index: Array, num_prompts: int
) -> ReadTokens | None:
    if "token_id" not in file.parts:
        return None
    rows = index.shape
    text = _texts(file, "token_text")
    return ReadTokens(
        prompt_index=index,
        position=file.take("token_position", I64, shape=rows),
        token_id=file.take("token_id", I64, shape=rows),
        text=text,
        in_template=file.take("in_template", U8, shape=rows).astype(bool),
        num_tokens=file.take("num_tokens", I64, shape=(num_prompts,)),
        num_bos=file.take("num_bos", I64, shape=(num_prompts,)),
    )


def _texts(file: TensorFile, name: str) -> tuple[str, ...]:
    return _list(name, file.take_json(name))


def _parse_steered(words: str | None) -> tuple[str, ...]:
    return () if words is None else _list("steered", read_json(words.encode()))


def _list(name: str, document: object) -> tuple[str, ...]:
    texts = require(f"`{name}`", document, list)
    return tuple(require(f"{name}[{at}]", text, str) for at, text in enumerate(texts))
