"""What both sides of a tokenizer's process agree on. Imports little, to start fast."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Iterable
from typing import TypeAlias

# A sequence of ints that takes four bytes for each; numpy.asarray reads it as int32.
TokenIds: TypeAlias = "array[int]"

# More than any tokenizer makes of a character: the longest normalization, to 18 others,
# has 33 bytes.
_TOKENS_PER_CHARACTER = 64
# More than any tokenizer adds to a text.
_ADDED_TOKENS = 1024


def seconds_for(num_bytes: int) -> float:
    """Say how many seconds an answer to a request of so many bytes may take.

    Tokenizers read a million bytes a second and more.
    """
    return 10 + num_bytes / 50_000


def max_tokens(num_characters: int) -> int:
    """Say how many tokens a text of so many characters may become."""
    return _ADDED_TOKENS + _TOKENS_PER_CHARACTER * num_characters


def pack(token_ids: Iterable[int]) -> str:
    """Write token ids as text, four bytes each.

    Raises:
        OverflowError: One needs more than 31 bits.
    """
    try:
        numbers = array("i", token_ids)
    except OverflowError:
        raise OverflowError("a token id needs more than 31 bits") from None
    return base64.b64encode(numbers.tobytes()).decode("ascii")


def unpack(text: str) -> TokenIds:
    """Read what ``pack`` wrote.

    Raises:
        ValueError: It is something else.
    """
    token_ids: TokenIds = array("i")
    token_ids.frombytes(base64.b64decode(text, validate=True))
    return token_ids
