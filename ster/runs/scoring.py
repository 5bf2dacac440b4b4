"""Scoring responses: how likely the model finds whole texts, steered or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.checkpoint.tokens.responses import EncodedResponses
from ster.decoder.contract import Decoder
from ster.decoder.steerings import Steerings
from ster.decoder.whole import WholeModel
from ster.errors import NumericsError
from ster.runs.loop import run_blocks
from ster.runs.places import check_places
from ster.runs.plan import Plan
from ster.runs.progress import Whole, report_block
from ster.runs.session import Session
from ster.runs.streams import pack_steered
from ster.stream.changes import Deltas
from ster.stream.packing import Ints, PackedPrompts

Array = TypeVar("Array")
# Rows that go through the head at once.
HEAD_ROWS = 128


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

    def score_all(
        self, steerings: Sequence[Deltas], whole: Whole | None = None
    ) -> list[list[float]]:
        """Sum the log-probabilities of each response's tokens, those that count.

        Args:
            steerings: As many as were planned for, or fewer.
            whole: What this is a part of, if progress counts more.

        Returns:
            For each steering the scores of all responses.

        Raises:
            UsageError: Something is to be done to tokens that a response does not have.
            NumericsError: A score is no finite number.
        """
        scores: list[list[float]] = [[] for _ in steerings]
        session, plan = self.scoring.session, self.scoring.plan
        check_responses(self.scoring.responses, steerings)
        for number, wave in enumerate(plan.waves):
            responses = self.scoring.responses.take(wave)
            on_block = partial(
                report_block,
                session,
                plan,
                number,
                label="scoring response",
                whole=whole,
            )
            found = score_responses(self.decoder, responses, steerings, on_block)
            for total, part in zip(scores, found, strict=True):
                total += part
        if whole is not None:
            whole.finish(plan)
        for deltas, each in zip(steerings, scores, strict=True):
            finite = np.isfinite(each)
            if not finite.all():
                what, number = "a log-probability is", int(finite.argmin()) + 1
                raise not_finite(what, session, deltas, number)
        return scores


def plan_scoring(
    session: Session,
    responses: EncodedResponses,
    batch_size: int | None,
    *,
    steerings: int = 1,
    by_prompt: bool = False,
) -> Scoring:
    """Plan the scoring of responses, at least one.

    Args:
        session: The open checkpoint.
        responses: Whole responses.
        batch_size: How many run as one stream, at least one, or fewer where memory
            bounds them; None is as many as it allows.
        steerings: Under how many steerings they are scored, all in one stream.
        by_prompt: These tell tokens apart by where a response's prompt ends.

    Raises:
        CapacityError: Not even one response fits.
    """
    session.check_tokens(responses.token_ids)
    work: dict[str, Any] = {"max_prompts": batch_size, "steerings": steerings}
    if by_prompt:
        work["kinds"] = session.kinds(responses.token_ids, responses.prompt_lengths)
    plan = session.plan(
        responses.token_ids,
        session.spec.num_hidden_layers,
        head=True,
        logit_rows=HEAD_ROWS,
        **work,
    )
    return Scoring(session=session, responses=responses, plan=plan)


def check_responses(responses: EncodedResponses, steerings: Sequence[Deltas]) -> None:
    """Refuse to do something to tokens that a response does not have.

    Raises:
        UsageError: Tokens of a prompt are meant, and a response answers none.
    """
    lengths = [*map(len, responses.token_ids)]
    for deltas in steerings:
        check_places(deltas, responses.prompt_lengths, lengths)


def score_responses(
    decoder: Decoder[Array],
    responses: EncodedResponses,
    deltas: Sequence[Deltas],
    on_block: Callable[[int], None] | None = None,
) -> list[list[float]]:
    """Sum the log-probabilities of each response's tokens, each given those before it.

    Tokens before a response's start do not count. Responses under all steerings run as
    one packed stream.

    Args:
        decoder: The blocks, with head.
        responses: Their tokens, and where they start.
        deltas: The steerings.
        on_block: As for ``run_blocks``.

    Returns:
        For each steering the scores of all responses.
    """
    if isinstance(decoder, WholeModel):
        return [_score_whole(decoder, responses, each) for each in deltas]
    size, lengths = len(responses.token_ids), responses.prompt_lengths
    texts = [(each, length) for each in range(len(deltas)) for length in lengths]
    steerings = Steerings(decoder, deltas, texts)
    token_ids = [*responses.token_ids] * len(deltas)
    which = [
        steerings.treatments.of(*text, len(ids))
        for text, ids in zip(texts, token_ids, strict=True)
    ]
    steered = pack_steered(
        decoder.spec, token_ids, which, steerings.parting(np.concatenate(which))
    )
    counted = _Counted.of(steered.packed, responses, len(deltas))
    if not len(counted.rows):
        return [[0.0] * size for _ in deltas]
    parts = steered.parts(
        decoder,
        steerings,
        num_blocks=decoder.spec.num_hidden_layers,
        top_rows=counted.rows,
    )
    before = steered.before
    hidden = run_blocks(
        decoder, before.token_ids, before.position_ids, parts, on_block=on_block
    )
    scores = counted.sums(_log_probabilities(decoder, hidden, counted))
    return [[*scores[at : at + size]] for at in range(0, len(scores), size)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """The tokens that count, each with the row before it, which tells of it.

    Args:
        rows: Those rows of a stream, ascending and distinct, (num_rows,).
        places: The place in ``rows`` of each token, (num_tokens,).
        token_ids: The tokens, (num_tokens,).
        texts: Whose they are, (num_tokens,).
        num_texts: Of all.
    """

    rows: Ints
    places: Ints
    token_ids: Ints
    texts: Ints
    num_texts: int

    @classmethod
    def of(
        cls, packed: PackedPrompts, responses: EncodedResponses, times: int
    ) -> _Counted:
        """Find them in a stream that holds the responses so many times."""
        following = [
            np.asarray(ids[start:], np.int64)
            for ids, start in zip(responses.token_ids, responses.starts, strict=True)
        ] * times
        rows = [
            packed.rows_of(text)[-1 - len(each) : -1]
            for text, each in enumerate(following)
        ]
        distinct, places = np.unique(np.concatenate(rows), return_inverse=True)
        return cls(
            rows=distinct,
            places=places,
            token_ids=np.concatenate(following),
            texts=np.repeat(np.arange(len(rows)), [*map(len, following)]),
            num_texts=len(rows),
        )

    def sums(self, values: NDArray[np.float64]) -> list[float]:
        """Add up values of the tokens for each text."""
        found = np.bincount(self.texts, values, minlength=self.num_texts)
        return [*map(float, found)]


def _log_probabilities(
    decoder: Decoder[Array], hidden: Array, counted: _Counted
) -> NDArray[np.float64]:
    """Compute the log-probability of each token that counts, (num_tokens,)."""
    values = np.empty(len(counted.places), np.float64)
    order = np.argsort(counted.places, kind="stable")
    bounds = range(0, len(counted.rows), HEAD_ROWS)
    cuts = np.searchsorted(counted.places[order], [*bounds[1:]])
    for at, tokens in zip(bounds, np.split(order, cuts), strict=True):
        rows = np.arange(at, min(at + HEAD_ROWS, len(counted.rows)))
        values[tokens] = decoder.log_probabilities(
            decoder.take(hidden, rows),
            counted.places[tokens] - at,
            counted.token_ids[tokens],
        )
    return values


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
    ends = responses.prompt_lengths
    scores = model.score_responses(responses.token_ids, deltas, ends)
    both = zip(responses.token_ids, responses.starts, strict=True)
    befores = [tuple(ids[:start]) for ids, start in both]
    asked = [each for each in dict.fromkeys(befores) if len(each) > 1]
    alone = model.score_responses(asked, deltas, [*map(len, asked)])
    off = dict(zip(asked, alone, strict=True))
    return [
        score - off.get(before, 0.0)
        for score, before in zip(scores, befores, strict=True)
    ]
