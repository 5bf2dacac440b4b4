"""Texts before they are tokenized: what is refused, and how many go together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ster.errors import PromptError

# The most texts, and about the most characters, that are tokenized together: enough to
# keep all cores busy; more would only take memory.
_BATCH_SIZE = 1024
_BATCH_CHARACTERS = 1 << 22


def split_texts(texts: Sequence[str]) -> Iterator[list[str]]:
    """Cut texts into batches that are tokenized together."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (
            len(batch) == _BATCH_SIZE or size + len(text) > _BATCH_CHARACTERS
        ):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def refuse_what_is_no_text(texts: Sequence[str]) -> None:
    """Refuse what no tokenizer takes, before a template is shown it.

    Raises:
        PromptError: One is no string, or has half a character in it.
    """
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise PromptError(
                f"failed to tokenize prompt: prompt {number} is no text but "
                f"{type(text).__name__}",
                prompt=number,
                found=type(text).__name__,
                expected="str",
            )
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            code = ord(text[error.start])
            raise PromptError(
                f"failed to tokenize prompt: prompt {number} has a lone surrogate "
                f"(U+{code:04X}), which is no character",
                prompt=number,
                found=text,
            ) from error


def refuse_several_turns(conversations: Sequence[Sequence[object]], label: str) -> None:
    """Refuse conversations that only a template can make one text of.

    Args:
        conversations: Their turns.
        label: Why there is no template: ``absent`` or ``off``.

    Raises:
        PromptError: One has more than one turn.
    """
    for number, turns in enumerate(conversations, start=1):
        if len(turns) > 1:
            raise PromptError(
                "a conversation of several turns needs the model's chat template, and "
                f"this run's chat template is {label}",
                field="chat_template",
                found=label,
                expected="applied",
                prompt=number,
            )
