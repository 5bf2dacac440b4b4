"""The ``--where`` grammar: which tokens of a text something is done to.

Positions are counted in the encoded text, the first token being 0, and negative ones
from the end of its prompt: of ``-1..`` are the prompt's last token and all that is
generated after it. Loads no arrays, so the command line can check words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ster.errors import UsageError
from ster.text import quoted, trim

# After every position that there is.
NO_END = 2**62
_EXPECTED = (
    "all, prompt, generated, last, or an index or half-open range such as 4.. or -2..; "
    "negative ones count from the prompt's end"
)
_INDEX = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)
_RANGE = re.compile(r"([+-]?[0-9]{1,9})?\.\.([+-]?[0-9]{1,9})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A position in a text: counted from its beginning, or from its prompt's end.

    Args:
        offset: How far from there.
        from_prompt_end: It is counted from the number of the prompt's tokens.
    """

    offset: int
    from_prompt_end: bool = False

    def place(self, prompt_length: int) -> int:
        """Return the position in a text whose prompt has so many tokens."""
        return max(0, self.offset + prompt_length * self.from_prompt_end)


BEGINNING, END = Bound(offset=0), Bound(offset=NO_END)
_PROMPT_END = Bound(offset=0, from_prompt_end=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The tokens of a text that something is done to: those from one bound to another.

    Args:
        start: The first.
        stop: The one after the last.
        words: How they were asked for.
    """

    start: Bound = BEGINNING
    stop: Bound = END
    words: str = field(default="all", compare=False)

    def span(self, prompt_length: int) -> tuple[int, int]:
        """Return the positions in a text whose prompt has so many tokens."""
        return self.start.place(prompt_length), self.stop.place(prompt_length)

    def has_any(self, prompt_length: int, length: int) -> bool:
        """Tell whether a text of so many tokens, so many its prompt's, has any."""
        start, stop = self.span(prompt_length)
        return start < min(stop, length)

    @property
    def needs_prompt(self) -> bool:
        """Whether it tells tokens apart by where the prompt ends."""
        return self.start.from_prompt_end or self.stop.from_prompt_end

    @property
    def is_after_prompt(self) -> bool:
        """Whether no token of a prompt is meant."""
        return self.start.from_prompt_end and self.start.offset >= 0

    @property
    def is_in_prompt(self) -> bool:
        """Whether only tokens of a prompt are meant."""
        return self.stop.from_prompt_end and self.stop.offset <= 0


EVERYWHERE = Where()
_WORDS = {
    "all": EVERYWHERE,
    "prompt": Where(stop=_PROMPT_END, words="prompt"),
    "generated": Where(start=_PROMPT_END, words="generated"),
    "last": Where(
        start=Bound(offset=-1, from_prompt_end=True), stop=_PROMPT_END, words="last"
    ),
}


def parse_where(words: str) -> Where:
    """Read a ``--where`` value.

    Raises:
        UsageError: It is something else, or means no token at all.
    """
    word = trim(words)
    if word in _WORDS:
        return _WORDS[word]
    if _INDEX.fullmatch(word):
        first = _bound(word)
        after = Bound(offset=first.offset + 1, from_prompt_end=first.from_prompt_end)
        return Where(start=first, stop=after, words=word)
    match = _RANGE.fullmatch(word)
    if match is None or match.groups() == (None, None):
        raise UsageError(
            f"unknown tokens {quoted(words)}; expected {_EXPECTED}",
            field="where",
            found=words,
            expected=_EXPECTED,
        )
    start, stop = match.groups()
    first = BEGINNING if start is None else _bound(start)
    after = END if stop is None else _bound(stop)
    alike = first.from_prompt_end == after.from_prompt_end
    if alike and first.offset >= after.offset:
        raise UsageError(
            f"the range {quoted(word)} is empty: its end is not included",
            field="where",
            found=words,
        )
    return Where(start=first, stop=after, words=word)


def _bound(word: str) -> Bound:
    return Bound(offset=int(word), from_prompt_end=word.startswith("-"))
