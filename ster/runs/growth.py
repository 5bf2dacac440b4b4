"""A text that grows a token at a time, and how texts grow."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ster.runs.sampling import Sampling
from ster.stream.packing import Tokens

# Why a text ended: a stop token, as many tokens as asked for, or the trained length is
# full.
Ended = Literal["stop", "length", "context"]


@dataclass(slots=True, kw_only=True)
class Growing:
    """A text that grows.

    Args:
        number: Its number among all.
        prompt: The tokens that it begins with.
        steering: Number of what it is steered with.
        random: Where its tokens are drawn from.
        token_ids: The tokens that were written.
        ended: Why it ended; None where it has not.
        is_finite: The logits of its next token were finite numbers.
        was_close: Rounding might have changed one of its tokens; it was chosen alone.
    """

    number: int
    prompt: Tokens
    steering: int
    random: np.random.Generator
    token_ids: list[int] = field(default_factory=list)
    ended: Ended | None = None
    is_finite: bool = True
    was_close: bool = False

    @property
    def tokens(self) -> list[int]:
        """All its tokens."""
        return [*self.prompt, *self.token_ids]

    def __len__(self) -> int:
        """Count all its tokens."""
        return len(self.prompt) + len(self.token_ids)

    def add(self, token: int, growth: Growth, max_position_embeddings: int) -> None:
        """Take its next token, or end at it."""
        if token in growth.stop_ids or not self.is_finite:
            self.ended = "stop"
            return
        self.token_ids.append(token)
        if len(self.token_ids) == growth.max_new_tokens:
            self.ended = "length"
        elif len(self) == max_position_embeddings:
            self.ended = "context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How texts grow.

    Args:
        sampling: How their tokens are chosen.
        stop_ids: The end-of-text tokens.
        max_new_tokens: Most tokens of each.
        max_texts: Texts at work at once, at most.
        reading_tokens: Tokens that are read at once, at most, unless one text has more.
    """

    sampling: Sampling
    stop_ids: Collection[int]
    max_new_tokens: int
    max_texts: int = 1
    reading_tokens: int = 0
