"""Scoring texts as a notebook has them."""

from __future__ import annotations

from collections.abc import Iterable

from ster.documents.prompts import check_asked, check_text, take_list
from ster.errors import UsageError, require_whole_number
from ster.runs.scoring import check_responses, plan_scoring
from ster.runs.session import Session
from ster.workflows.steering import Steer, norms_of, take_steering


def score_texts(
    session: Session,
    texts: Iterable[str],
    prompts: Iterable[str | None] | None,
    steer: Steer,
    batch_size: int | None,
) -> list[float]:
    """Sum each text's log-probabilities, as a whole response or an answer to a prompt.

    Args:
        session: The open checkpoint.
        texts: Whole responses.
        prompts: What each of them answers, if anything.
        steer: What is added to the stream.
        batch_size: How many run as one stream; None is as many as memory allows.

    Raises:
        SterError: A text, the steering or a number is refused, or a score is no finite
            number.
    """
    if batch_size is not None and require_whole_number(batch_size, "batch_size") < 1:
        sentence = f"batch_size must be at least one, not {batch_size}"
        raise UsageError(sentence, field="batch_size", found=batch_size)
    steered = take_steering(steer, session)
    responses = take_list(texts, "responses")
    for number, response in enumerate(responses, start=1):
        check_text(response, "a response", number)
    asked = None if prompts is None else check_asked(prompts)
    if not responses:
        return []
    encoded = session.encoder.encode_responses(responses, asked)
    scoring = plan_scoring(session, encoded, batch_size, by_prompt=steered.needs_prompt)
    deltas = steered.deltas(norms_of(session, responses, asked))
    check_responses(encoded, deltas)  # before a weight is opened
    with scoring.open() as scorer:
        return scorer.score_all(deltas)[0]
