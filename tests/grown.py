"""Texts that grow from token ids, whatever they may mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ster.decoder.contract import Decoder
from ster.runs.growing import grow
from ster.runs.growth import Growth
from ster.runs.sampling import Sampling
from ster.runs.session import Session

NONE: Mapping[int, Any] = {}


def grow_tokens(
    session: Session,
    prompts: Sequence[Sequence[int]],
    count: int,
    deltas: Sequence[Mapping[int, Any]] = (NONE,),
    *,
    sampling: Sampling | None = None,
    stop_ids: Collection[int] = (),
    max_texts: int | None = None,
    watch: Any = None,
) -> list[list[int]]:
    """Continue prompts, each under every steering, all at once unless told otherwise.

    Args:
        session: The open checkpoint.
        prompts: Their tokens.
        count: Tokens that are written.
        deltas: The steerings.
        sampling: How they are chosen; the likeliest unless given.
        stop_ids: Tokens that end a text; none unless given.
        max_texts: Texts that grow at once.
        watch: Is given the decoder before it works.

    Returns:
        The tokens that were written, prompt by prompt, one list for each steering.
    """
    texts = [(ids, each) for ids in prompts for each in range(len(deltas))]
    plan = session.plan(
        [ids for ids, _ in texts],
        session.spec.num_hidden_layers,
        head=True,
        new_tokens=count,
        repeats=True,
    )
    growth = Growth(
        sampling=sampling or Sampling(),
        stop_ids=stop_ids,
        max_new_tokens=count,
        max_texts=max_texts or len(plan.waves[0]),
        reading_tokens=plan.reading_tokens,
    )
    made: list[list[int]] = [[] for _ in texts]
    with session.open(plan) as decoder:
        _watch(decoder, watch)
        for text in grow(decoder, texts, deltas, growth):
            made[text.number] = list(text.token_ids)
    return made


def _watch(decoder: Decoder[Any], watch: Any) -> None:
    if watch is not None:
        watch(decoder)
