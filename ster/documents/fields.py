"""Taking fields from a parsed artifact, and checking its schema and product."""

from __future__ import annotations

from typing import TypeVar

from ster.documents.strict_json import JsonError
from ster.errors import DocumentError
from ster.text import quoted

SCHEMA_VERSION = 1
PRODUCT = "ster"
Kind = TypeVar("Kind", int, str, list[object], dict[str, object])
_KIND_NAMES = {int: "whole number", str: "string", list: "list", dict: "object"}


def field(fields: dict[str, object], name: str, kind: type[Kind]) -> Kind:
    """Take a field that must be there, or raise JsonError."""
    if name not in fields:
        raise JsonError(f"missing field `{name}`")
    return require(f"`{name}`", fields[name], kind)


def optional_string(fields: dict[str, object], name: str) -> str | None:
    """Take a string that may be missing or null, or raise JsonError."""
    return None if fields.get(name) is None else field(fields, name, str)


def require(what: str, value: object, kind: type[Kind]) -> Kind:
    """Take a value of a kind, or raise JsonError about ``what``."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise JsonError(f"{what} is no {_KIND_NAMES[kind]}")
    return value


def check_provenance(fields: dict[str, object]) -> None:
    """Refuse an artifact of another schema or product.

    Raises:
        JsonError: One of these two fields is missing.
        DocumentError: One of them names another.
    """
    check_schema(field(fields, "schema_version", int))
    check_product(field(fields, "product", str))


def check_schema(schema: object, expected: int | str = SCHEMA_VERSION) -> None:
    """Refuse an artifact of another schema.

    Args:
        schema: What the artifact says.
        expected: The schema that is read, as the artifact's format writes it.

    Raises:
        DocumentError: It is another.
    """
    if schema != expected:
        raise DocumentError(
            f"artifact schema {schema} is unsupported; "
            f"this Ster build reads schema {SCHEMA_VERSION}",
            field="schema_version",
            found=schema,
            expected=expected,
        )


def check_product(product: str) -> None:
    """Refuse an artifact of another product.

    Raises:
        DocumentError: It is another.
    """
    if product != PRODUCT:
        sentence = f"artifact belongs to product {quoted(product)}, not Ster"
        raise DocumentError(sentence, field="product", found=product, expected=PRODUCT)


def require_texts(what: str, value: object) -> dict[str, str]:
    """Take an object of strings, or raise JsonError about ``what`` or one of them."""
    texts = require(what, value, dict)
    return {name: require(f"`{name}`", text, str) for name, text in texts.items()}


def parse_row(row: object, layer: int, hidden_size: int) -> list[object]:
    """Take the numbers of one layer, not yet narrowed to f32.

    Raises:
        JsonError: It is no list of numbers.
        DocumentError: It has another length, or a null for a number.
    """
    values = require(f"layer {layer}", row, list)
    if len(values) != hidden_size:
        raise DocumentError(
            f"layer {layer} has vector width {len(values)}, expected {hidden_size}",
            layer=layer,
            found=len(values),
            expected=hidden_size,
        )
    # Types are compared, since numpy would read true and "1.0" as 1.0.
    foreign = set(map(type, values)) - {float, int}
    if foreign == {type(None)}:
        raise DocumentError(f"layer {layer} contains a non-finite value", layer=layer)
    if foreign:
        raise JsonError(f"layer {layer} contains what is no number")
    return values
