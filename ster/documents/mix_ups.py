"""Documents of ster that stand in each other's place: naming what one is."""

from __future__ import annotations

from collections.abc import Mapping

from ster.documents.strict_json import JsonError

# By the key that no other document has.
_WORDS = {
    "pairs": "holds pairs, which --pairs takes",
    "vectors": "is a steering artifact, which --vector takes",
    "records": "holds activations",
    "prompts": "holds prompts",
    "answers": "holds answers of ster generate",
}


def refuse_other_kinds(document: Mapping[str, object], own: str) -> None:
    """Say what a document is that lacks its own key and has that of another kind.

    Args:
        document: The parsed document.
        own: The key that it should have.

    Raises:
        JsonError: It is a document of another kind.
    """
    if own in document:
        return
    for key, words in _WORDS.items():
        if isinstance(document.get(key), list):
            raise JsonError(f"the document {words}; missing field `{own}`")
