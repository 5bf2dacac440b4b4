"""The ``--tokens`` grammar: which tokens of a prompt are read.

A choice is ``last``, ``text``, ``all``, ``mean``, or a comma list of indices and
half-open ranges such as ``0,-3..``; negative numbers count from the end.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ster.errors import PromptError, UsageError
from ster.text import quoted, trim

# What a notebook may give: the words, an index, a slice, indices, or a function of a
# prompt's tokens.
Tokens = str | int | slice | Iterable[int] | Callable[[Any], Any]
Span = tuple[int, int]

_WORDS = ("last", "text", "all", "mean")
_EXPECTED = (
    "last, text, all, mean, or indices and half-open ranges such as 0,-3..; negative "
    "ones count from the end"
)
_ONE_ROW = "last, text, mean and an index"
_INDEX = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_RANGE = re.compile(r"([+-]?[0-9]{1,18})?\.\.([+-]?[0-9]{1,18})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenChoice:
    """Which tokens of every prompt are read.

    Args:
        words: As ``--tokens`` says it.
        picks: Indices and slices, where these are chosen.
        function: Takes a prompt's tokens, and returns indices or a mask.
    """

    words: str
    picks: tuple[int | slice, ...] = ()
    function: Callable[[Any], Any] | None = None

    @property
    def is_last(self) -> bool:
        """Whether the last token is read, and no other."""
        return self.words == "last"

    @property
    def is_mean(self) -> bool:
        """Whether tokens are read for their mean, which is one row."""
        return self.words == "mean"

    @property
    def may_be_one(self) -> bool:
        """Whether every prompt may have one row; of some choices only a run tells."""
        return self.words != "all" and (
            len(self.picks) < 2 or self.function is not None
        )

    @property
    def is_one(self) -> bool:
        """Whether no prompt can have several rows, however long it is."""
        if self.words == "all" or self.function is not None or len(self.picks) > 1:
            return False
        return all(map(_is_at_most_one, self.picks))

    @property
    def needs_text(self) -> bool:
        """Whether the text's own tokens have to be told from a template's."""
        return self.words in ("text", "mean")

    def positions(
        self, num_tokens: int, own: Span | None, number: int, tokens: object
    ) -> Sequence[int]:
        """Choose tokens of one prompt, ascending, each once.

        Args:
            num_tokens: How many it has.
            own: The first of the text's own tokens, and the one after the last.
            number: Which prompt it is, counted from 1.
            tokens: The same tokens as ``function`` takes them.

        Raises:
            PromptError: It has no such token, or its own are not known.
        """
        if self.needs_text:
            if own is None:
                raise PromptError(
                    f"this model's chat template changes the text of prompt {number}, "
                    "so its own tokens cannot be told from the template's",
                    f"--tokens {self.words} needs them; last, all and indices do not",
                    field="tokens",
                    found=self.words,
                    prompt=number,
                )
            return range(own[1] - 1, own[1]) if self.words == "text" else range(*own)
        if self.words == "all":
            return range(num_tokens)
        if self.is_last:
            return range(num_tokens - 1, num_tokens)
        picks = self.picks
        if self.function is not None:
            picks = _take(self.function(tokens), num_tokens)
        chosen: set[int] = set()
        for pick in picks:
            chosen.update(_resolve(pick, num_tokens, number))
        if not chosen:
            raise PromptError(
                f"tokens {self.words} are none of the {num_tokens} of prompt {number}",
                field="tokens",
                found=self.words,
                prompt=number,
            )
        return sorted(chosen)


def parse_tokens(words: str) -> TokenChoice:
    """Read a ``--tokens`` value.

    Raises:
        UsageError: It is something else.
    """
    word = trim(words)
    if word in _WORDS:
        return TokenChoice(words=word)
    segments = [segment for part in words.split(",") if (segment := trim(part))]
    if not segments:
        raise _unknown(words)
    picks = tuple(_parse(segment, words) for segment in segments)
    return TokenChoice(words=",".join(segments), picks=picks)


def choose_tokens(tokens: Tokens) -> TokenChoice:
    """Take what a notebook gives: words, an index, a slice, indices or a function.

    Raises:
        UsageError: It is none of them.
    """
    if isinstance(tokens, str):
        return parse_tokens(tokens)
    if callable(tokens):
        name = getattr(tokens, "__name__", type(tokens).__name__)
        return TokenChoice(words=f"chosen by {name}", function=tokens)
    picks = _take(tokens)
    if not picks:
        raise _unknown(tokens)
    return TokenChoice(words=",".join(map(_word, picks)), picks=picks)


def choose_one_row(tokens: Tokens) -> TokenChoice:
    """Choose one row of every text, as of each side of a pair.

    Raises:
        UsageError: As for ``choose_tokens``, or a text can have several such rows, or a
            function chooses them, which no document records.
    """
    choice = choose_tokens(tokens)
    if not choice.is_one:
        raise UsageError(
            f"tokens {choice.words} are not one row of each side of a pair; "
            f"{_ONE_ROW} are",
            field="tokens",
            found=choice.words,
            expected=_ONE_ROW,
        )
    return choice


def _is_at_most_one(pick: int | slice) -> bool:
    if isinstance(pick, int):
        return True
    start: int = pick.start or 0
    stop: int | None = pick.stop
    if start < 0 and stop is not None and stop >= 0:
        # From near the end to near the beginning: rows of short texts only.
        return min(stop, -start) < 2
    if start >= 0 and (stop is None or stop < 0):
        return False
    return (stop or 0) - start < 2


def _parse(segment: str, words: str) -> int | slice:
    if _INDEX.fullmatch(segment):
        return int(segment)
    match = _RANGE.fullmatch(segment)
    if match is None:
        raise _unknown(words)
    start, stop = (None if end is None else int(end) for end in match.groups())
    return slice(start, stop)


def _take(given: object, num_tokens: int | None = None) -> tuple[int | slice, ...]:
    """Turn an index, a slice, indices or a mask into indices and slices.

    Args:
        given: What was chosen.
        num_tokens: The length that a mask must have; None where prompts may differ,
            and then there are no masks.
    """
    if isinstance(given, slice):
        if given.step not in (None, 1):
            raise _unknown(given)
        return (given,)
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        listed = list(given)
        if listed and all(type(each).__name__ in ("bool", "bool_") for each in listed):
            if len(listed) != num_tokens:
                raise UsageError(
                    f"a mask of {len(listed)} tokens is none of {num_tokens or 'any'}",
                    "a function makes one for each prompt: tokens=lambda each: ...",
                    field="tokens",
                    found=len(listed),
                    expected=num_tokens,
                )
            return tuple(place for place, is_read in enumerate(listed) if is_read)
    else:
        listed = [given]
    if any(isinstance(each, bool) for each in listed):
        raise _unknown(given)
    try:
        return tuple(operator.index(each) for each in listed)
    except TypeError:
        raise _unknown(given) from None


def _resolve(pick: int | slice, num_tokens: int, number: int) -> range:
    if isinstance(pick, slice):
        return range(*pick.indices(num_tokens))
    if not -num_tokens <= pick < num_tokens:
        raise PromptError(
            f"prompt {number} has {num_tokens} tokens, so there is no token {pick}",
            field="tokens",
            found=pick,
            expected=range(-num_tokens, num_tokens),
            prompt=number,
        )
    return range(pick % num_tokens, pick % num_tokens + 1)


def _word(pick: int | slice) -> str:
    if isinstance(pick, int):
        return str(pick)
    start, stop = ("" if end is None else end for end in (pick.start, pick.stop))
    return f"{start}..{stop}"


def _unknown(tokens: object) -> UsageError:
    shown = quoted(tokens) if isinstance(tokens, str) else repr(tokens)
    return UsageError(
        f"unknown tokens {shown}; expected {_EXPECTED}",
        field="tokens",
        found=tokens,
        expected=_EXPECTED,
    )
