"""Texts as token ids that know which of their tokens are the text's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ster.checkpoint.tokens.bounds import TokenIds

# The first, and the one after the last: of the characters of a text that is encoded, or
# of its tokens.
Span = tuple[int, int]
# Finds the characters of a prompt in the text that is encoded for it, by its number.
FindText = Callable[[int, str], Span | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedTexts:
    """Encoded texts.

    Args:
        token_ids: Of each of them.
        own: Which of these are the text's own, and not a template's or special ones;
            None where the text is not to be found.
    """

    token_ids: Sequence[TokenIds]
    own: Sequence[Span | None]
