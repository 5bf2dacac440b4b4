"""Whether texts have the tokens that something is to be done to."""

from __future__ import annotations

from collections.abc import Sequence

from ster.errors import UsageError
from ster.stream.changes import Deltas, wheres_of
from ster.stream.where import Where


def check_places(
    deltas: Deltas, prompt_lengths: Sequence[int], lengths: Sequence[int]
) -> None:
    """Refuse to do something to tokens that a text does not have.

    Args:
        deltas: What is done, and where.
        prompt_lengths: How many tokens of each text are its prompt's ...
        lengths: ... of how many.

    Raises:
        UsageError: Tokens after a prompt are meant and there are none, or tokens of a
            prompt of a text that answers none.
    """
    for where in wheres_of(deltas):
        both = zip(prompt_lengths, lengths, strict=True)
        for number, (prompt_length, length) in enumerate(both, start=1):
            cause = ""
            if where.is_after_prompt and prompt_length == length:
                cause = "it is read as a prompt, and answers nothing"
            elif where.is_in_prompt and not prompt_length:
                cause = "it is a response that answers no prompt"
            if cause:
                raise UsageError(
                    f"where {where.words} means no token of text {number}",
                    cause,
                    field="where",
                    found=where.words,
                    prompt=number,
                )


def find_idle(
    steerings: Sequence[Deltas], prompt_lengths: Sequence[int], lengths: Sequence[int]
) -> list[Where]:
    """Find places that none of one or more texts has.

    Args:
        steerings: What is done under each of them, and where.
        prompt_lengths: As for ``check_places``.
        lengths: As for ``check_places``.
    """
    texts = [*zip(prompt_lengths, lengths, strict=True)]
    places = dict.fromkeys(each for deltas in steerings for each in wheres_of(deltas))
    return [
        where for where in places if not any(where.has_any(*each) for each in texts)
    ]
