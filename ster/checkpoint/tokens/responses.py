"""Texts that answer a prompt: how the two are joined, and where the answer begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ster.checkpoint.tokens.bounds import TokenIds
from ster.checkpoint.tokens.texts import refuse_what_is_no_text
from ster.errors import PromptError

# How a response was encoded.
ALONE = "alone"
AFTER_PROMPT = "after prompt"
AFTER_EMPTY = "after empty user turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedResponses:
    """Whole responses as token ids, in their order.

    Args:
        token_ids: An ``array`` of ints each.
        forms: How each was encoded: ``alone``, ``after prompt`` or ``after empty user
            turn``.
        starts: The first token of each that counts in its score: the first after its
            prompt, else the second, since nothing stands before the first.
    """

    token_ids: Sequence[TokenIds]
    forms: tuple[str, ...]
    starts: tuple[int, ...]

    @property
    def prompt_lengths(self) -> list[int]:
        """How many tokens of each are its prompt's: none where it answers nothing."""
        both = zip(self.starts, self.forms, strict=True)
        return [start if form == AFTER_PROMPT else 0 for start, form in both]

    def take(self, numbers: Sequence[int]) -> EncodedResponses:
        """Take some of them, counted from 0."""
        return EncodedResponses(
            token_ids=[self.token_ids[number] for number in numbers],
            forms=tuple(self.forms[number] for number in numbers),
            starts=tuple(self.starts[number] for number in numbers),
        )

    def join(self, others: EncodedResponses) -> EncodedResponses:
        """Put others after these."""
        return EncodedResponses(
            token_ids=[*self.token_ids, *others.token_ids],
            forms=self.forms + others.forms,
            starts=self.starts + others.starts,
        )

    @property
    def num_counted(self) -> tuple[int, ...]:
        """How many tokens of each count in its score."""
        both = zip(self.token_ids, self.starts, strict=True)
        return tuple(len(ids) - start for ids, start in both)


def match_prompts(
    texts: Sequence[str], prompts: Sequence[str | None] | None
) -> Sequence[str | None]:
    """Refuse what is no text, and return the prompt of each text, or None.

    Raises:
        PromptError: There are other numbers of them, or something is no text.
    """
    if prompts is None:
        prompts = [None] * len(texts)
    if len(prompts) != len(texts):
        raise PromptError(
            f"{len(texts)} responses cannot answer {len(prompts)} prompts"
        )
    refuse_what_is_no_text(texts)
    refuse_what_is_no_text(["" if prompt is None else prompt for prompt in prompts])
    return prompts


def join(prompt: str | None, text: str) -> str:
    """Write prompt and answer as one text.

    One space stands between them, unless either has white space there.
    """
    if prompt is None:
        return text
    apart = prompt[-1:].isspace() or text[:1].isspace()
    return prompt + ("" if apart else " ") + text


def find_starts(
    token_ids: Sequence[TokenIds], before: Sequence[TokenIds | None]
) -> tuple[int, ...]:
    """Find the first token of each response that counts in its score.

    An answer begins where its tokens part from those of its prompt alone.

    Args:
        token_ids: The responses.
        before: The prompt alone of each that answers one.

    Raises:
        PromptError: An answer adds no token to its prompt.
    """
    starts: list[int] = []
    both = zip(token_ids, before, strict=True)
    for number, (ids, asked) in enumerate(both, start=1):
        shared = 0 if asked is None else _count_shared(ids, asked)
        if shared == len(ids):
            raise PromptError("tokenizer produced no tokens", prompt=number)
        starts.append(max(shared, 1))
    return tuple(starts)


def _count_shared(first: TokenIds, second: TokenIds) -> int:
    """Count the tokens that both begin with."""
    length = min(len(first), len(second))
    differ = np.asarray(first)[:length] != np.asarray(second)[:length]
    return int(differ.argmax()) if differ.any() else length
