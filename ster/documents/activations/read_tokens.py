"""Which tokens the rows of activations were read at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ster.errors import DocumentError

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
# The position and the id of a row that is a mean over several tokens.
NO_TOKEN = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ReadTokens:
    """The token of each row, in the order of the rows.

    Args:
        prompt_index: Which prompt each row belongs to, counted from 0, (num_rows,).
        position: The token's position in its prompt's encoding, from 0; -1 for a mean
            over several tokens.
        token_id: The token's id; -1 for a mean.
        text: The text of each token, or for a mean what it is over.
        in_template: Whether the chat template or the tokenizer wrote the token, not the
            text itself.
        num_tokens: How many tokens each prompt was encoded into, (num_prompts,).
        num_bos: How many of them begin a sequence, (num_prompts,).

    Raises:
        DocumentError: The parts do not fit together.
    """

    prompt_index: Ints
    position: Ints
    token_id: Ints
    text: tuple[str, ...]
    in_template: Bools
    num_tokens: Ints
    num_bos: Ints

    def __post_init__(self) -> None:
        """Check once that the parts fit together."""
        rows = {len(self.prompt_index), len(self.position), len(self.token_id)}
        rows |= {len(self.text), len(self.in_template)}
        prompts = {len(self.num_tokens), len(self.num_bos)}
        if len(rows) != 1 or len(prompts) != 1:
            raise DocumentError("the columns of read tokens differ in length")
        index = self.prompt_index
        if len(index) and not 0 <= index.min() <= index.max() < len(self.num_bos):
            raise DocumentError("a read token belongs to no prompt")

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.position)

    def __repr__(self) -> str:
        """Show the tokens of the first rows."""
        shown = [repr(text) for text in self.text[:8]]
        more = ["…"] if len(self) > len(shown) else []
        return f"ReadTokens({', '.join([*shown, *more])})"

    def by_prompt(self) -> Iterator[ReadTokens]:
        """Yield those of each prompt, as if it were alone; they stand together."""
        ends = np.searchsorted(self.prompt_index, range(len(self.num_bos) + 1))
        for number, (start, stop) in enumerate(pairwise(ends.tolist())):
            yield self.take(range(start, stop), [number])

    def take(self, rows: npt.ArrayLike, prompts: Sequence[int]) -> ReadTokens:
        """Take some rows, whose prompts become these, in this order."""
        chosen: Any = np.asarray(rows)
        place = np.full(len(self.num_bos), -1)
        place[[*prompts]] = np.arange(len(prompts))
        return ReadTokens(
            prompt_index=place[self.prompt_index[chosen]],
            position=self.position[chosen],
            token_id=self.token_id[chosen],
            text=tuple(self.text[row] for row in chosen),
            in_template=self.in_template[chosen],
            num_tokens=self.num_tokens[[*prompts]],
            num_bos=self.num_bos[[*prompts]],
        )
