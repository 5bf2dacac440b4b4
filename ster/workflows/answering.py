"""Answering prompts at several strengths of what steers them."""

from __future__ import annotations

from collections.abc import Iterator

from ster.documents.answers import Answer
from ster.documents.prompt_sets.value import Prompts, PromptSet
from ster.runs.sampling import Answering
from ster.runs.session import Session
from ster.runs.writing import plan_writing
from ster.vectors.strengths import Strengths
from ster.workflows.steering import Steer, sum_at_strengths


def answer_prompts(
    session: Session,
    prompts: Prompts,
    answering: Answering,
    steer: Steer,
    strengths: Strengths | None,
) -> Iterator[Answer]:
    """Answer every prompt at every strength; refuse at once what needs no weights.

    Args:
        session: The open checkpoint.
        prompts: As for ``plan_writing``.
        answering: How they are answered.
        steer: What is added to the stream.
        strengths: What that is multiplied by; once, as it is, if not given.

    Returns:
        The answers to the first prompt, one for each strength, then those to the next.

    Raises:
        SterError: A prompt, the steering or a strength is refused, or it does not fit.
    """
    asked = PromptSet.of(prompts)
    times, steerings = sum_at_strengths(steer, strengths, session)
    writing = plan_writing(session, asked, answering, steerings)
    return (
        Answer(
            prompt=asked.prompts[each.prompt],
            strength=times[each.steering],
            text=each.text,
            token_ids=each.token_ids,
            ended=each.ended,
        )
        for each in writing.answers()
    )
