"""Whether a file of named arrays is a document of ster's, and of which kind."""

from __future__ import annotations

from collections.abc import Mapping

from ster.documents.fields import SCHEMA_VERSION, check_product, check_schema
from ster.documents.strict_json import JsonError
from ster.errors import DocumentError
from ster.text import quoted


def check_kind(metadata: Mapping[str, str], kind: str) -> None:
    """Refuse a binary document of another product, schema or kind.

    Raises:
        JsonError: It does not say.
        DocumentError: It says another.
    """
    check_product(_take(metadata, "product"))
    check_schema(_take(metadata, "schema_version"), str(SCHEMA_VERSION))
    found = _take(metadata, "document")
    if found != kind:
        sentence = f"the document is {quoted(found)}, not {quoted(kind)}"
        raise DocumentError(sentence, field="document", found=found, expected=kind)


def _take(metadata: Mapping[str, str], name: str) -> str:
    if name not in metadata:
        raise JsonError(f"its metadata have no `{name}`, so it is none of ster's")
    return metadata[name]
