"""What a ``Runtime`` does with words: it answers prompts, and scores responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, Unpack

from ster.documents.answers import Answer
from ster.documents.prompt_sets.value import Prompts
from ster.runs.sampling import Answering, AnsweringKeywords
from ster.runs.session import Session
from ster.vectors.strengths import Strengths
from ster.workflows.answering import answer_prompts, stream_answer
from ster.workflows.scoring import score_texts
from ster.workflows.steering import Steer

Turns: TypeAlias = Sequence[Mapping[str, str]]


class Answers:
    """The methods of a ``Runtime`` that write and score texts."""

    _session: Session

    def generate(
        self, prompt: str, *, steer: Steer = (), **how: Unpack[AnsweringKeywords]
    ) -> str:
        """Answer a prompt.

        Args:
            prompt: One user message under a chat template, else a text to continue.
            steer: One vector, or several whose sum is added to every token's residual
                stream, in prompt and answer alike; each alone or in a tuple with its
                strength, such as ``(vector, "0.05n")``; or an ``Intervention``, which
                says how it is applied, and where. Residual norms that a vector lacks
                are measured on the prompts.
            **how: ``system``, the system's message before the prompt;
                ``max_new_tokens`` (128); ``temperature`` (0, the likeliest token each
                time), ``top_p`` and ``seed``, or all three as ``sampling``; or all of
                it as ``answering``.

        Returns:
            The answer without special tokens.

        Raises:
            SterError: The prompt, the steering or a weight is refused.

        Example:
            >>> from ster import load, write_toy_checkpoint
            >>> write_toy_checkpoint("toy")
            >>> load("toy").generate("describe the evening lake .", max_new_tokens=4)
            'loud sea hard hard'
        """
        return "".join(self.stream(prompt, steer=steer, **how))

    def stream(
        self,
        prompt: str | Turns,
        *,
        steer: Steer = (),
        **how: Unpack[AnsweringKeywords],
    ) -> Iterator[str]:
        """Answer as ``generate`` does, yielding text as it becomes readable.

        Args:
            prompt: As for ``generate``; or, under a chat template, the turns of a
                conversation to go on with, each a mapping of ``role`` and ``content``.
            steer: As for ``generate``.
            **how: As for ``generate``.

        Raises:
            SterError: As for ``generate``. What can be refused without weights is
                refused by the call itself, before any text is asked for.
        """
        answering = Answering.of(**how)
        return stream_answer(self._session, prompt, answering, steer)

    def generate_all(
        self,
        prompts: Prompts,
        *,
        steer: Steer = (),
        **how: Unpack[AnsweringKeywords],
    ) -> Iterator[str]:
        """Answer many prompts at once, each as ``generate`` does, in their order.

        Raises:
            SterError: As for ``generate``; every prompt is checked before the first is
                answered.
        """
        answers = self.answers(prompts, steer=steer, **how)
        return (answer.text for answer in answers)

    def answers(
        self,
        prompts: Prompts,
        *,
        steer: Steer = (),
        strengths: Strengths | None = None,
        **how: Unpack[AnsweringKeywords],
    ) -> Iterator[Answer]:
        """Answer prompts at several strengths, and say how each answer came about.

        Args:
            prompts: Whatever ``PromptSet.of`` takes, each as for ``generate``; a chat
                is gone on with.
            steer: As for ``generate``.
            strengths: What ``steer`` is multiplied by; every prompt is answered at
                each. Once, as it is, if not given.
            **how: As for ``generate``.

        Returns:
            The answers to the first prompt, one for each strength, then those to the
            next.

        Raises:
            SterError: As for ``generate_all``, or a strength is refused.
        """
        answering = Answering.of(**how)
        return answer_prompts(self._session, prompts, answering, steer, strengths)

    def response_tokens(self, text: str) -> list[int]:
        """Encode a whole response; under a template it is an assistant's turn."""
        return self._session.encoder.encode_response(text)

    def score_responses(
        self,
        texts: Iterable[str],
        *,
        prompts: Iterable[str | None] | None = None,
        steer: Steer = (),
        batch_size: int | None = None,
    ) -> list[float]:
        """Sum the log-probabilities of each response's tokens, the first left out.

        Args:
            texts: Whole responses.
            prompts: What each of them answers; None where it answers nothing. Of an
                answer all tokens count, and none of its prompt.
            steer: As for ``generate``.
            batch_size: How many responses run as one stream; as many as memory allows
                unless given.

        Raises:
            SterError: A text or a weight is refused.
        """
        return score_texts(self._session, texts, prompts, steer, batch_size)
