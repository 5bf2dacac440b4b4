"""What the tokens of prompts are: in words, and whether the text's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ster.checkpoint.encoder import Encoder
from ster.checkpoint.tokens.bounds import TokenIds
from ster.checkpoint.tokens.located import Span
from ster.documents.activations.read_tokens import NO_TOKEN, ReadTokens
from ster.runs.rows import WantedRows


def describe_tokens(
    encoder: Encoder,
    token_ids: Sequence[TokenIds],
    own: Sequence[Span | None],
    wanted: WantedRows | None = None,
) -> ReadTokens:
    """Describe the tokens that are read, row by row.

    Args:
        encoder: What encoded the prompts.
        token_ids: The tokens of each prompt.
        own: Which of these are the text's own; where that is not known, none counts as
            the template's.
        wanted: Those that are read; all if not given.

    Raises:
        PromptError: The tokenizer fails.
    """
    if wanted is None:
        wanted = WantedRows(positions=[range(len(ids)) for ids in token_ids])
    places = [np.asarray(each, np.int64) for each in wanted.positions]
    num_tokens = np.array([len(ids) for ids in token_ids])
    num_bos = np.array([encoder.count_bos(ids) for ids in token_ids])
    if wanted.is_mean:
        nothing = np.full(len(places), NO_TOKEN)
        return ReadTokens(
            prompt_index=np.arange(len(places)),
            position=nothing,
            token_id=nothing,
            text=tuple(f"mean of {len(each)} tokens" for each in places),
            in_template=np.zeros(len(places), np.bool_),
            num_tokens=num_tokens,
            num_bos=num_bos,
        )
    ids = np.concatenate(
        [np.asarray(all_ids)[at] for all_ids, at in zip(token_ids, places, strict=True)]
    )
    texts = encoder.token_texts(ids.tolist())
    foreign = [*map(_foreign, places, own)]
    return ReadTokens(
        prompt_index=wanted.prompt_index,
        position=np.concatenate(places),
        token_id=ids.astype(np.int64),
        text=tuple(texts[token] for token in ids.tolist()),
        in_template=np.concatenate(foreign),
        num_tokens=num_tokens,
        num_bos=num_bos,
    )


def _foreign(places: np.ndarray, own: Span | None) -> np.ndarray:
    if own is None:
        return np.zeros(len(places), np.bool_)
    return (places < own[0]) | (places >= own[1])
