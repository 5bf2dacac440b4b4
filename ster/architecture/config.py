"""config.json -> ModelSpec: every field resolved, or the checkpoint refused.

Nothing that changes the numbers has a silent default of ster's own; where a field may
be absent, the value is the one transformers gives that family.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

from ster.architecture.families import FAMILIES
from ster.architecture.fields import Fields
from ster.architecture.quantization import read_quantization
from ster.architecture.spec import ModelSpec, Naming
from ster.architecture.strangers import explain_stranger
from ster.architecture.wide_families import way_out
from ster.architecture.wrappers import INNER, explain_wrapper, unwrap
from ster.documents.strict_json import read_json
from ster.errors import ConfigError
from ster.text import quoted


def read_config(path: Path) -> ModelSpec:
    """Read config.json.

    Raises:
        ConfigError: The file cannot be read, is no JSON, or asks for something that
            ster does not implement.
    """
    return resolve_config(read_document(path), str(path))


def read_document(path: Path) -> dict[str, object]:
    """Read config.json as the JSON object that it is.

    Raises:
        ConfigError: The file cannot be read or is no JSON.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"failed to read {path}", error, path=path) from error
    try:
        document = read_json(data)
    except ValueError as error:
        raise ConfigError(f"invalid model config {path}", error, path=path) from error
    if not isinstance(document, dict):
        sentence = f"invalid model config {path}"
        raise ConfigError(sentence, "it is not a JSON object", path=path)
    return cast("dict[str, object]", document)


def is_owned(document: dict[str, object]) -> bool:
    """Tell whether the family, or that of a text model in it, is one of ster's own."""
    return _names_family(document) or _inner_family(document) is not None


def resolve_config(document: dict[str, object], path: str) -> ModelSpec:
    """Resolve a parsed config; ``path`` is for sentences.

    Raises:
        ConfigError: As for ``read_config``.
    """
    if not is_owned(document):
        raise unsupported(document, path, way_out(document))
    if _names_family(document):
        return _resolve(_all_fields(document, path), document)
    wrapped = unwrap(document, path)
    spec = None if wrapped is None else _resolve(wrapped.fields, document)
    # Of families whose files have other names, none was seen in a wrapper.
    if wrapped is None or spec is None or spec.naming != Naming():
        family = str(_inner_family(document))
        raise unsupported(document, path, explain_wrapper(document, family))
    return wrapped.place(spec)


def _resolve(fields: Fields, document: dict[str, object]) -> ModelSpec:
    whole = _all_fields(document, fields.path)
    quantization = read_quantization(replace(whole, model_type=fields.model_type))
    _require_causal(fields)
    return replace(FAMILIES[fields.model_type](fields), quantization=quantization)


def _all_fields(document: dict[str, object], path: str) -> Fields:
    return Fields(values=document, path=path, model_type=str(document["model_type"]))


def _inner_family(document: dict[str, object]) -> str | None:
    """Name the family of the text model that a wrapper's config describes."""
    inner = document.get(INNER)
    if not isinstance(inner, dict) or not _names_family(inner):
        return None
    return str(inner["model_type"])


def _names_family(document: dict[str, object]) -> bool:
    model_type = document.get("model_type")
    return isinstance(model_type, str) and model_type in FAMILIES


def unsupported(document: dict[str, object], path: str, *causes: str) -> ConfigError:
    """Make the refusal of a family, with what it is or the way out as its causes."""
    declared = document.get("model_type")
    model_type = declared if isinstance(declared, str) else ""
    return ConfigError(
        f"model architecture {quoted(model_type)} is unsupported by this Ster "
        "build; use a Hugging Face checkpoint whose model_type is one of "
        + ", ".join(FAMILIES),
        *(explain_stranger(document) or causes),
        path=path,
        field="model_type",
        found=declared,
        expected=tuple(FAMILIES),
    )


def _require_causal(fields: Fields) -> None:
    """Refuse embedding models, whose tokens see those after them too."""
    if not fields.flag("is_causal", default=True):
        fields.refuse(
            "is_causal",
            False,
            "true: Ster reads models that write from left to right, and the tokens of "
            "this embedding model see those after them too",
        )
