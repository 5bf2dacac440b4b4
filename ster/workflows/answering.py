"""Answering prompts at several strengths of what steers them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ster.documents.answers import Answer
from ster.documents.prompt_sets.value import Prompts, PromptSet
from ster.runs.sampling import Answering
from ster.runs.session import Session
from ster.runs.writing import Writing, plan_writing
from ster.vectors.applying import ADDING
from ster.vectors.strengths import Strengths
from ster.workflows.steering import Steer, Steered, norms_of, take_steering


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
    steered = take_steering(steer, session, strengths)
    writing = plan_steered(session, asked, answering, steered)
    numbers, words = _name(steered)
    interventions = _apply(steered)
    return (
        Answer(
            prompt=asked.prompts[each.prompt],
            strength=numbers[each.steering],
            strength_word=words[each.steering],
            text=each.text,
            token_ids=each.token_ids,
            ended=each.ended,
            interventions=interventions,
        )
        for each in writing.answers()
    )


def _name(steered: Steered) -> tuple[list[float | None], list[str | None]]:
    """Say each strength: as a number, or in norms, which no number says, as a word."""
    if not steered.vectors:
        return [None], [None]
    numbers = [None if each.of_norm else each.value for each in steered.times]
    return numbers, [each.word for each in steered.times]


def _apply(steered: Steered) -> tuple[dict[str, object], ...]:
    """Say how each vector is applied, unless all are added to all tokens."""
    if all(applying == ADDING for applying in steered.applied):
        return ()
    return tuple(applying.document for applying in steered.applied)


def stream_answer(
    session: Session,
    prompt: str | Sequence[Mapping[str, str]],
    answering: Answering,
    steer: Steer,
) -> Iterator[str]:
    """Answer one prompt, or the last turn of a chat, as text that grows.

    Raises:
        SterError: As for ``answer_prompts``.
    """
    steered = take_steering(steer, session)
    return plan_steered(session, [prompt], answering, steered).stream()


def plan_steered(
    session: Session, prompts: Prompts, answering: Answering, steered: Steered
) -> Writing:
    """Plan the answers under each strength.

    Residual norms that no vector carries are measured on the prompts at once; what can
    be refused without weights is refused before.

    Raises:
        SterError: As for ``plan_writing``, or what is added is too long.
    """
    if steered.unmeasured:
        plan_writing(session, prompts, answering, [{} for _ in steered.times])
    deltas = steered.deltas(norms_of(session, prompts))
    return plan_writing(session, prompts, answering, deltas)
