"""The answers to a prompt set, as ``ster generate --prompts`` writes them.

One compact JSON object. Answers are written as they come, so memory does not grow with
their number. The document appears when every prompt is answered. If the run ends
earlier, the finished answers are kept beside it under a name with ``.partial``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from ster.documents.fields import PRODUCT, SCHEMA_VERSION
from ster.documents.strict_json import check_json_name, dump_json
from ster.documents.whole_files import AtomicFile
from ster.text import decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer to a prompt.

    Args:
        prompt: The prompt, verbatim.
        strength: What the vector was multiplied by; None where nothing was steered, or
            by no single number.
        text: What was written, without special tokens.
        token_ids: Its tokens, without the stop token.
        ended: Why it ended: ``"stop"``, at a stop token; ``"length"``, after
            ``max_new_tokens``; ``"context"``, where the trained length is full.
        strength_word: A strength in residual norms as it is spelled, such as
            ``"0.05n"``; None for any other.
        interventions: How each vector was applied, in their order, under the names that
            ``Intervention`` takes; none where all were added to all tokens.

    Example:
        >>> from ster import load, write_toy_checkpoint
        >>> write_toy_checkpoint("toy")
        >>> (answer,) = load("toy").answers(["the sea is calm ."], max_new_tokens=2)
        >>> len(answer.token_ids), answer.ended, answer.strength
        (2, 'length', None)
    """

    prompt: str
    strength: float | None
    text: str
    token_ids: tuple[int, ...]
    ended: str
    strength_word: str | None = None
    interventions: tuple[Mapping[str, object], ...] = field(default=(), hash=False)

    @property
    def spelled(self) -> str:
        """The strength as it was given, a number or in norms; 0 where there is none."""
        return self.strength_word or decimal(self.strength or 0.0)

    @property
    def document(self) -> dict[str, object]:
        """What the document says of it; what is not always there where there is one."""
        word = {"strength_word": self.strength_word} if self.strength_word else {}
        applied = {"interventions": [*map(dict, self.interventions)]}
        return {
            "prompt": self.prompt,
            "strength": self.strength,
            **word,
            **(applied if self.interventions else {}),
            "text": self.text,
            "tokens": len(self.token_ids),
            "ended": self.ended,
        }


PARTIAL = ".partial"


class AnswerWriter:
    """Write answers one by one; the document appears when the ``with`` ends well.

    When it ends with an exception, the old document stays as it was, and the answers
    so far, if any, become a whole document under the name with ``.partial`` behind it.
    ``kept`` is the path of that document, or None.

    Args:
        path: Where the document shall be.
        model: The ``--model`` value, exactly as given.
        model_revision: The Hub commit or the given revision, None where there is none.

    Raises:
        OutputError: The document cannot be written; known before the first answer.
    """

    __slots__ = ("_file", "_header", "kept", "num_answers")

    def __init__(
        self, path: str | os.PathLike[str], *, model: str, model_revision: str | None
    ) -> None:
        check_json_name(path)
        self._file = AtomicFile(path)
        header = {
            "schema_version": SCHEMA_VERSION,
            "product": PRODUCT,
            "model": model,
            "model_revision": model_revision,
            "answers": [],
        }
        self._header = dump_json(header, self._file.path).removesuffix(b"]}")
        self.num_answers = 0
        self.kept: str | None = None

    def __enter__(self) -> Self:
        """Open the document and write what stands before the answers."""
        self._file.__enter__()
        self._file.write(self._header)
        return self

    def write(self, answer: Answer) -> None:
        """Append an answer."""
        record = dump_json(answer.document, self._file.path)
        self._file.write(b"," + record if self.num_answers else record)
        self.num_answers += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish the document, or after an error keep what there is beside it."""
        if kind is None:
            self._file.write(b"]}")
            self._file.__exit__(None, None, None)
        elif self.num_answers:
            self.kept = self._file.set_aside(b"]}", PARTIAL)
        else:
            self._file.__exit__(kind, error, trace)
