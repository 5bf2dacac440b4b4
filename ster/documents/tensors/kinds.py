"""Whether a file of named arrays is a document of ster's, and of which kind."""

from __future__ import annotations

from collections.abc import Mapping

from ster.documents.fields import PRODUCT, SCHEMA_VERSION
from ster.documents.strict_json import JsonError
from ster.errors import DocumentError
from ster.text import quoted


def check_kind(metadata: Mapping[str, str], kind: str) -> None:
    """Refuse a binary document of another product, schema or kind.

    Raises:
        JsonError: It does not say.
        DocumentError: It says another.
    """
    for name, expected, sentence in (
        ("product", PRODUCT, "artifact belongs to product {}, not Ster"),
        (
            "schema_version",
            str(SCHEMA_VERSION),
            "artifact schema {} is unsupported; "
            f"this Ster build reads schema {SCHEMA_VERSION}",
        ),
        ("document", kind, f"the document is {{}}, not {quoted(kind)}"),
    ):
        if name not in metadata:
            raise JsonError(f"its metadata have no `{name}`, so it is none of ster's")
        found = metadata[name]
        if found != expected:
            shown = found if name == "schema_version" else quoted(found)
            raise DocumentError(
                sentence.format(shown), field=name, found=found, expected=expected
            )
