"""Scoring responses: how likely the model finds whole texts, steered or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ster.decoder.contract import Decoder
from ster.decoder.whole import WholeModel
from ster.errors import DirectionError, NumericsError, PromptError
from ster.runs.inputs import pack_tokens, stream_inputs
from ster.runs.loop import Deltas, bring_vectors, run_blocks
from ster.runs.plan import Plan
from ster.runs.session import Session
from ster.stream.packing import PackedPrompts, Tokens

Array = TypeVar("Array")
# Rows whose logits are held at once.
LOGIT_ROWS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Responses that are encoded, and whose scoring is planned.

    Args:
        session: The open checkpoint.
        token_ids: Their tokens.
        plan: Waves and memory.
    """

    session: Session
    token_ids: Sequence[Tokens]
    plan: Plan

    @contextmanager
    def open(self) -> Iterator[Scorer]:
        """Open the weights once, for any number of scorings."""
        with self.session.open(self.plan) as decoder:
            yield Scorer(scoring=self, decoder=decoder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """Scores the responses under different steering."""

    scoring: Scoring
    decoder: Decoder[Any]

    def score(self, deltas: Deltas) -> list[float]:
        """Sum the log-probabilities of each response, its first token left out.

        Raises:
            NumericsError: A score is no finite number.
        """
        scores: list[float] = []
        for wave in self.scoring.plan.waves:
            token_ids = [self.scoring.token_ids[index] for index in wave]
            scores += score_responses(self.decoder, token_ids, deltas)
        finite = np.isfinite(scores)
        if not finite.all():
            what, number = "a log-probability is", int(finite.argmin()) + 1
            raise not_finite(what, self.scoring.session, deltas, number)
        return scores


def plan_scoring(
    session: Session, token_ids: Sequence[Tokens], batch_size: int, *, repeats: bool
) -> Scoring:
    """Plan the scoring of responses, at least one.

    Args:
        session: The open checkpoint.
        token_ids: Tokens of whole responses.
        batch_size: How many run as one stream, or fewer where memory bounds them.
        repeats: They will be scored more than once.

    Raises:
        DirectionError: A batch would be empty.
        CapacityError: Not even one response fits.
    """
    if batch_size < 1:
        raise DirectionError(
            "strength selection requires batch size of at least one",
            field="batch_size",
            found=batch_size,
            expected=1,
        )
    session.check_tokens(token_ids)
    plan = session.plan(
        token_ids,
        session.spec.num_hidden_layers,
        head=True,
        logit_rows=LOGIT_ROWS,
        max_prompts=batch_size,
        repeats=repeats,
    )
    return Scoring(session=session, token_ids=token_ids, plan=plan)


def score_texts(
    session: Session, texts: Sequence[str], deltas: Deltas, batch_size: int
) -> list[float]:
    """Sum each text's log-probabilities, as a whole response.

    Raises:
        DirectionError: A batch would be empty.
        PromptError: A text cannot be encoded, or one string is given for the list.
        NumericsError: A score is no finite number.
    """
    if isinstance(texts, str):
        raise PromptError(
            "responses must be a list of strings, not one string",
            field="responses",
            found=texts,
            expected="a list of strings",
        )
    if not texts:
        return []
    token_ids = session.encoder.encode_responses(texts).token_ids
    scoring = plan_scoring(session, token_ids, batch_size, repeats=False)
    with scoring.open() as scorer:
        return scorer.score(deltas)


def score_responses(
    decoder: Decoder[Array], responses: Sequence[Tokens], deltas: Deltas
) -> list[float]:
    """Sum the log-probabilities of each response's tokens, each given those before it.

    The first token has none before it and does not count. Responses run as one packed
    stream.
    """
    if isinstance(decoder, WholeModel):
        return decoder.score_responses(responses, deltas)
    packed = pack_tokens(decoder.spec, responses)
    num_blocks = decoder.spec.num_hidden_layers
    hidden = run_blocks(
        decoder,
        packed.token_ids,
        packed.position_ids,
        stream_inputs(decoder, packed, top=num_blocks - 1, top_rows=None),
        num_blocks=num_blocks,
        vectors=bring_vectors(decoder, deltas),
    )
    return [
        _sum_log_probabilities(decoder, hidden, packed, number, ids)
        for number, ids in enumerate(responses)
    ]


def not_finite(
    what: str, session: Session, deltas: Deltas, number: int
) -> NumericsError:
    """Make the refusal of numbers that are none, with the way out.

    Args:
        what: Which numbers, and the verb.
        session: Whose they are.
        deltas: What was added to the stream.
        number: The prompt or response, counted from 1.
    """
    precision, wider = session.precision, session.precision != "f32"
    cause = "the checkpoint's own weights lead there"
    if deltas:
        cause = "the stream was steered: less strength may help"
    return NumericsError(
        f"{what} not finite at --precision {precision}{'; use f32' * wider}",
        *([] if wider and not deltas else [cause]),
        field="precision",
        found=precision,
        prompt=number,
    )


def _sum_log_probabilities(
    decoder: Decoder[Array],
    hidden: Array,
    packed: PackedPrompts,
    number: int,
    token_ids: Tokens,
) -> float:
    rows, following = packed.rows_of(number)[:-1], np.array(token_ids[1:], np.int64)
    total = 0.0
    for at in range(0, len(rows), LOGIT_ROWS):
        part = slice(at, at + LOGIT_ROWS)
        logits = decoder.unembed(decoder.take(hidden, rows[part])).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        chosen = logits[np.arange(len(logits)), following[part]]
        total += float((chosen - np.log(np.exp(logits).sum(axis=1))).sum())
    return total
