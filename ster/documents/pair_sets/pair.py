"""One contrastive pair, and what is refused of pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ster.errors import DocumentError, require_type
from ster.text import trim

# As a document spells them.
FIELDS = (
    *("positive", "negative", "prompt"),
    *("positive_system", "negative_system", "group"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContrastPair:
    """Two texts that differ in one trait.

    Args:
        positive: The text that has it.
        negative: The text that lacks it, or has its opposite.
        prompt: What a user says and both texts answer, if anything.
        positive_system: The system's turn before the positive side, if any. Where it
            makes the difference, both texts may be the same.
        negative_system: The system's turn before the negative side, if any.
        group: What the pair was made of, if known: a split keeps pairs of one group
            together.

    Example:
        >>> from ster import ContrastPair
        >>> ContrastPair(prompt="How are you?", positive="Splendid!", negative="Awful.")
        ContrastPair(positive='Splendid!', negative='Awful.', prompt='How are you?')
    """

    positive: str
    negative: str
    prompt: str | None = None
    positive_system: str | None = None
    negative_system: str | None = None
    group: str | None = None

    def __repr__(self) -> str:
        """Show what the pair has, and whether it has a prompt."""
        always = ("positive", "negative", "prompt")
        shown = [
            f"{name}={getattr(self, name)!r}"
            for name in FIELDS
            if name in always or getattr(self, name) is not None
        ]
        return f"ContrastPair({', '.join(shown)})"

    @property
    def has_system(self) -> bool:
        """Whether a side has a system's turn."""
        return (self.positive_system, self.negative_system) != (None, None)

    @property
    def document(self) -> dict[str, str]:
        """The pair as it is written, without what it lacks."""
        values = {name: getattr(self, name) for name in FIELDS}
        return {name: value for name, value in values.items() if value is not None}


def check_pairs(
    pairs: tuple[ContrastPair, ...], label: str, lines: Sequence[int] = ()
) -> None:
    """Refuse pairs that cannot be compared.

    Args:
        pairs: The pairs.
        label: What sentences call them.
        lines: The line that each begins on in its file, where that is known.

    Raises:
        DocumentError: There are none, or a text of one is blank or no text.
        UsageError: One is no ``ContrastPair``.
    """
    if not pairs:
        raise DocumentError(f"{label} contains no pairs")
    for number, pair in enumerate(pairs, start=1):
        require_type(pair, ContrastPair, "a pair")
        for texts, name, long_name in _texts_of(pair):
            fault = _find_fault(texts, name, long_name)
            if fault is None:
                continue
            where = (
                [f"pair {number} stands on line {lines[number - 1]}"] if lines else []
            )
            raise DocumentError(
                f"{label} contains {fault}",
                *where,
                found=texts if len(texts) > 1 else texts[0],
                prompt=number,
            )


def _texts_of(pair: ContrastPair) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield what a pair has, with the short and the long name of it."""
    yield (pair.positive, pair.negative), "side", "positive or negative prompt"
    for name in FIELDS[2:]:
        text = getattr(pair, name)
        if text is not None:
            yield (text,), name, name


def _find_fault(texts: Sequence[str], name: str, long_name: str) -> str | None:
    if not all(isinstance(text, str) for text in texts):
        return f"a {name} that is no string"
    if not all(map(trim, texts)):
        return f"an empty {long_name}"
    try:
        "".join(texts).encode("utf-8")
    except UnicodeEncodeError:
        return f"a {name} with a lone surrogate, which is no character"
    return None
