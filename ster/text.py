r"""Rules about text that ster shares with its Rust sibling, so both say the same.

White space is Unicode's White_Space. A value in a sentence is quoted as Rust's Debug
quotes it, on one line whatever it holds; a number reads as Rust's Display writes it.
Text from files, arguments and models passes ``one_line`` or ``printable`` before a
person sees it: such text could move the cursor or forge a line.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real

# str.strip() would take U+001C to U+001F too, which are no White_Space.
WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

_NAMED_ESCAPES = {
    '"': r"\"",
    "\\": r"\\",
    "\0": r"\0",
    "\t": r"\t",
    "\n": r"\n",
    "\r": r"\r",
}

# What controls a terminal: C0, DEL and C1, Unicode's line and paragraph separators, and
# the marks that turn the direction of writing.
CONTROLS = frozenset(
    (
        *range(0x20),
        *range(0x7F, 0xA0),
        0x061C,
        *(0x200E, 0x200F),
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
    )
)
_ESCAPES = {code: f"\\u{{{code:x}}}" for code in CONTROLS}
_SHOWN = {code: text for code, text in _ESCAPES.items() if chr(code) not in "\t\n"}
_ON_ONE_LINE = {**_ESCAPES, ord("\t"): r"\t", ord("\n"): r"\n", ord("\r"): r"\r"}


def trim(text: str) -> str:
    """Take white space off both ends."""
    return text.strip(WHITE_SPACE)


def quoted(text: str) -> str:
    """Put a value between double quotes, with what would not show escaped."""
    return '"' + "".join(map(_escape, text)) + '"'


def printable(text: str) -> str:
    """Escape what would control a terminal; lines and tabs stay."""
    return text.translate(_SHOWN)


def one_line(text: str) -> str:
    """Escape what would control a terminal or begin another line."""
    return text.translate(_ON_ONE_LINE)


def listing(names: Sequence[str], word: str) -> str:
    """Name one or more, with a word such as ``and`` before the last."""
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last


def counted(number: int, noun: str) -> str:
    """Write a number of things: ``1 prompt``, ``2 prompts``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def megabytes(count: int) -> str:
    """Write what is needed, in bytes, as megabytes: rounded up."""
    return f"{-(-count // 10**6)} MB"


def allowed_megabytes(count: int) -> str:
    """Write what may be used as megabytes: rounded down, for no more may be."""
    return counted(count, "byte") if count < 10**6 else f"{count // 10**6} MB"


def to_float(number: float | Real) -> float:
    """Convert any real number; an integer too large for a float becomes infinite."""
    try:
        return float(number)
    except OverflowError:
        return -math.inf if number < 0 else math.inf


def decimal(number: float) -> str:
    """Write a number without exponent, and without a point where it is whole."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    digits = f"{Decimal(repr(number)):f}"
    return digits.removesuffix(".0")


def _escape(character: str) -> str:
    if character in _NAMED_ESCAPES:
        return _NAMED_ESCAPES[character]
    # A combining mark would sit on the quote or the letter before it.
    if not character.isprintable() or unicodedata.category(character) in ("Mn", "Me"):
        return f"\\u{{{ord(character):x}}}"
    return character
