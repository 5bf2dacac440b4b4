"""The answers to a prompt set, as ``ster generate --prompts`` writes them.

One compact JSON object; it appears when every prompt is answered.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self

from ster.documents.strict_json import check_json_name, dump_json
from ster.documents.whole_files import AtomicFile


class AnswerWriter:
    """Collect answers; the document appears when the ``with`` ends.

    Args:
        path: Where the document shall be.
        model: The ``--model`` value, exactly as given.
        model_revision: The Hub commit or the given revision, None where there is none.

    Raises:
        OutputError: The document cannot be written; known before the first answer.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, model: str, model_revision: str | None
    ) -> None:
        check_json_name(path)
        self._file = AtomicFile(path)
        self._answers: list[dict[str, str]] = []
        self._document = {
            "schema_version": 1,
            "product": "ster",
            "model": model,
            "model_revision": model_revision,
            "answers": self._answers,
        }

    def __enter__(self) -> Self:
        """Make sure that the document can be written."""
        self._dump()
        self._file.__enter__()
        return self

    def write(self, prompt: str, answer: str) -> None:
        """Add an answer."""
        self._answers.append({"prompt": prompt, "answer": answer})

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the document, or after an error leave the place as it was."""
        if kind is None:
            self._file.write(self._dump())
        self._file.__exit__(kind, error, trace)

    def _dump(self) -> bytes:
        return dump_json(self._document, self._file.path)
