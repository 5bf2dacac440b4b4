"""Scoring responses: how likely the model finds whole texts, steered or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ster.checkpoint.tokens.responses import EncodedResponses
from ster.decoder.contract import Decoder
from ster.decoder.whole import WholeModel
from ster.errors import DirectionError, NumericsError, PromptError
from ster.runs.inputs import pack_tokens, stream_inputs
from ster.runs.loop import Deltas, bring_vectors, run_blocks
from ster.runs.plan import Plan
from ster.runs.session import Session
from ster.stream.packing import Ints, Tokens

Array = TypeVar("Array")
# Rows whose logits are held at once.
LOGIT_ROWS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Responses that are encoded, and whose scoring is planned.

    Args:
        session: The open checkpoint.
        responses: Their tokens, and which of them count.
        plan: Waves and memory.
    """

    session: Session
    responses: EncodedResponses
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
        """Sum the log-probabilities of each response's tokens, those that count.

        Raises:
            NumericsError: A score is no finite number.
        """
        scores: list[float] = []
        for wave in self.scoring.plan.waves:
            responses = self.scoring.responses.take(wave)
            scores += score_responses(self.decoder, responses, deltas)
        finite = np.isfinite(scores)
        if not finite.all():
            what, number = "a log-probability is", int(finite.argmin()) + 1
            raise not_finite(what, self.scoring.session, deltas, number)
        return scores


def plan_scoring(
    session: Session, responses: EncodedResponses, batch_size: int, *, repeats: bool
) -> Scoring:
    """Plan the scoring of responses, at least one.

    Args:
        session: The open checkpoint.
        responses: Whole responses.
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
    session.check_tokens(responses.token_ids)
    plan = session.plan(
        responses.token_ids,
        session.spec.num_hidden_layers,
        head=True,
        logit_rows=LOGIT_ROWS,
        max_prompts=batch_size,
        repeats=repeats,
    )
    return Scoring(session=session, responses=responses, plan=plan)


def score_texts(
    session: Session,
    texts: Sequence[str],
    deltas: Deltas,
    batch_size: int,
    prompts: Sequence[str | None] | None = None,
) -> list[float]:
    """Sum each text's log-probabilities, as a whole response or an answer to a prompt.

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
    responses = session.encoder.encode_responses(texts, prompts)
    scoring = plan_scoring(session, responses, batch_size, repeats=False)
    with scoring.open() as scorer:
        return scorer.score(deltas)


def score_responses(
    decoder: Decoder[Array], responses: EncodedResponses, deltas: Deltas
) -> list[float]:
    """Sum the log-probabilities of each response's tokens, each given those before it.

    Tokens before a response's start do not count. Responses run as one packed stream.
    """
    if isinstance(decoder, WholeModel):
        return _score_whole(decoder, responses, deltas)
    packed = pack_tokens(decoder.spec, responses.token_ids)
    num_blocks = decoder.spec.num_hidden_layers
    hidden = run_blocks(
        decoder,
        packed.token_ids,
        packed.position_ids,
        stream_inputs(decoder, packed, top=num_blocks - 1, top_rows=None),
        num_blocks=num_blocks,
        vectors=bring_vectors(decoder, deltas),
    )
    both = zip(responses.token_ids, responses.starts, strict=True)
    return [
        _sum_log_probabilities(decoder, hidden, packed.rows_of(number), ids, start)
        for number, (ids, start) in enumerate(both)
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


def _score_whole(
    model: WholeModel, responses: EncodedResponses, deltas: Deltas
) -> list[float]:
    """Score with a model that counts every token but the first.

    What it says of a prompt alone is taken off again.
    """
    scores = model.score_responses(responses.token_ids, deltas)
    both = zip(responses.token_ids, responses.starts, strict=True)
    befores = [tuple(ids[:start]) for ids, start in both]
    asked = [each for each in dict.fromkeys(befores) if len(each) > 1]
    off = dict(zip(asked, model.score_responses(asked, deltas), strict=True))
    return [
        score - off.get(before, 0.0)
        for score, before in zip(scores, befores, strict=True)
    ]


def _sum_log_probabilities(
    decoder: Decoder[Array], hidden: Array, rows: Ints, token_ids: Tokens, start: int
) -> float:
    # A row tells of the token after it.
    rows = rows[start - 1 : -1]
    following = np.array(token_ids[start:], np.int64)
    total = 0.0
    for at in range(0, len(rows), LOGIT_ROWS):
        part = slice(at, at + LOGIT_ROWS)
        logits = decoder.unembed(decoder.take(hidden, rows[part])).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        chosen = logits[np.arange(len(logits)), following[part]]
        total += float((chosen - np.log(np.exp(logits).sum(axis=1))).sum())
    return total
