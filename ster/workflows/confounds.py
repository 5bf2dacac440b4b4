"""Whether a trivial feature of pairs does as well as a direction, in a run's tokens."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ster.checkpoint.tokens.bounds import TokenIds
from ster.checkpoint.tokens.located import Span
from ster.runs.reading import Reading
from ster.vectors.confounds import Confound, find_confounds, warn_of


def check_confounds(
    reading: Reading, accuracy: float, measured: Sequence[int] | None = None
) -> tuple[Confound, ...]:
    """Find the trivial features that do as well as a direction, and warn of them.

    What is compared are the tokens of the sides themselves, without a template, a
    prompt or a system's turn.

    Args:
        reading: The pairs as they were read; see ``plan_pairs``.
        accuracy: The share of pairs that the best direction orders.
        measured: The indices of the pairs that this was measured on; all unless given.

    Raises:
        PromptError: The tokenizer fails.
    """
    session = reading.session

    def spell(token: Hashable) -> str:
        ids = [token] if isinstance(token, int) else []
        return "".join(session.encoder.token_texts(ids).values())

    sides = own_tokens(reading.token_ids, reading.own)
    found = find_confounds(sides, accuracy, measured=measured, spell=spell)
    if found:
        session.reporter.warn(warn_of(found, accuracy))
    return found


def own_tokens(
    token_ids: Sequence[TokenIds], own: Sequence[Span | None]
) -> list[list[int]]:
    """Cut out the tokens that are each text's own; all where these are not known."""
    spans = [span or (0, len(ids)) for ids, span in zip(token_ids, own, strict=True)]
    return [
        [int(token) for token in ids[first:end]]
        for ids, (first, end) in zip(token_ids, spans, strict=True)
    ]
