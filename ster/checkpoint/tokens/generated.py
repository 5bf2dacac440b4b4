"""Text that grows by generated tokens, given out as it becomes certain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

# What decoders write for bytes that are no character, or not yet.
_REPLACEMENT = "\ufffd"


class Decoding(Protocol):
    """What turns tokens into text."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Decode tokens, special ones left out."""

    def grow(self, token_ids: Sequence[int], token: int) -> tuple[bool, str | None]:
        """Decode tokens with one more, as ``LoadedTokenizer.grow`` does."""


class GeneratedText:
    """Text that grows by tokens; what may still change is held back.

    A character may take several tokens, a run of byte tokens is read as a whole, and
    the last word's spaces may depend on the next. So text is certain once two tokens in
    a row have left it unchanged.
    """

    def __init__(self, decoding: Decoding) -> None:
        self._decoding = decoding
        self._token_ids: list[int] = []
        self._before = ""
        self._given = ""

    def add(self, token: int) -> str:
        """Add a token; return the text that has become certain, perhaps none.

        Raises:
            PromptError: The token cannot be decoded.
        """
        is_written, whole = self._decoding.grow(self._token_ids, token)
        if not is_written:
            return ""
        self._token_ids.append(token)
        if whole is None:
            return ""
        before, self._before = self._before, whole
        end = min(_common_length(before, whole), len(whole.rstrip(_REPLACEMENT)))
        if not whole[:end].startswith(self._given):
            return ""
        piece = whole[len(self._given) : end]
        self._given += piece
        return piece

    def extend(self, token_ids: Sequence[int]) -> None:
        """Add tokens whose text nobody waits for; ``rest`` has it."""
        self._token_ids += token_ids

    def rest(self) -> str:
        """Return what was held back until the end."""
        whole = self._decoding.decode(self._token_ids)
        return whole[_common_length(self._given, whole) :]


def _common_length(text: str, longer: str) -> int:
    """Count the characters that two texts begin with alike."""
    if longer.startswith(text):
        return len(text)  # nearly always, and fast
    return next(n for n, letter in enumerate(text) if longer[n : n + 1] != letter)
