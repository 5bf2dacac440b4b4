"""Writing answers: prompts are encoded and planned, and their texts grow together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ster.architecture.spec import ModelSpec
from ster.checkpoint.stop_tokens import read_stop_ids
from ster.decoder.contract import Decoder
from ster.documents.prompt_sets.value import Prompts, PromptSet
from ster.errors import PromptError
from ster.reporting import Progress
from ster.runs.growing import grow
from ster.runs.growth import Ended, Growing, Growth
from ster.runs.places import find_idle
from ster.runs.plan import Plan
from ster.runs.sampling import Answering
from ster.runs.scoring import not_finite
from ster.runs.session import Session
from ster.stream.changes import Deltas, needs_prompt
from ster.stream.packing import Tokens
from ster.text import allowed_megabytes, counted, megabytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One answer.

    Args:
        prompt: Index of the prompt.
        steering: Index of what it was steered with.
        text: What was written, without special tokens.
        token_ids: Its tokens, without the stop token.
        ended: Why it ended.
    """

    prompt: int
    steering: int
    text: str
    token_ids: tuple[int, ...]
    ended: Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Prompts that are encoded, and whose answering is planned; no weight is open yet.

    Args:
        session: The open checkpoint.
        token_ids: Tokens of each prompt.
        stop_ids: The end-of-text tokens.
        plan: Memory, and how many texts grow at once.
        answering: How they are answered.
        steerings: Every prompt is answered under each of them: what is done to rows
            after some layers.
    """

    session: Session
    token_ids: Sequence[Tokens]
    stop_ids: frozenset[int]
    plan: Plan
    answering: Answering
    steerings: Sequence[Deltas]

    def answers(self) -> Iterator[Written]:
        """Answer every prompt under every steering, over weights opened once.

        Yields:
            The answers to a prompt, one for each steering, then those to the next.
        """
        finished: dict[int, Growing] = {}
        following, written, kept = 0, 0, 0
        with self.session.open(self.plan) as decoder:
            for text in self._grow(decoder):
                written += 1
                if text.ended is not None:
                    kept += len(text.token_ids)
                    self.session.done.written += len(text.token_ids)
                    finished[text.number] = text
                while following in finished:
                    yield self._written(finished.pop(following))
                    following += 1
                self._report(following + len(finished), kept, written)

    def stream(self) -> Iterator[str]:
        """Answer the first prompt, yielding text as it becomes readable."""
        text = self.session.encoder.open_text()
        taken = 0
        with self.session.open(self.plan) as decoder:
            for growing in self._grow(decoder):
                for token in growing.token_ids[taken:]:
                    if piece := text.add(token):
                        yield piece
                self.session.done.written += len(growing.token_ids) - taken
                taken = len(growing.token_ids)
        if piece := text.rest():
            yield piece

    def _report(self, num_ended: int, num_ended_tokens: int, num_written: int) -> None:
        total = len(self.token_ids) * len(self.steerings)
        several = len(self.steerings) > 1
        self.session.reporter.progress(
            Progress(
                label="writing answer" if several else "answering prompt",
                prompts_done=num_ended,
                num_prompts=total,
                layer=None,
                num_layers=self.plan.num_blocks,
                tokens_done=num_written,
                num_tokens=max(
                    num_written,
                    num_ended_tokens
                    + (total - num_ended) * self.answering.max_new_tokens,
                ),
            )
        )

    def _grow(self, decoder: Decoder[Any]) -> Iterator[Growing]:
        """Let the answers grow; refuse scores that are no numbers."""
        growth = Growth(
            sampling=self.answering.sampling,
            stop_ids=self.stop_ids,
            max_new_tokens=self.answering.max_new_tokens,
            max_texts=len(self.plan.waves[0]),
            reading_tokens=self.plan.reading_tokens,
        )
        self._warn_of_idle()
        prompts = [
            (ids, each) for ids in self.token_ids for each in range(len(self.steerings))
        ]
        for text in grow(decoder, prompts, self.steerings, growth):
            if not text.is_finite:
                what = "the scores of the next token are"
                deltas = self.steerings[text.steering]
                number = text.number // len(self.steerings) + 1
                raise not_finite(what, self.session, deltas, number)
            yield text

    def _warn_of_idle(self) -> None:
        """Warn of places that no text will have; its last token is never read."""
        limit = self.session.spec.max_position_embeddings
        prompts = [*map(len, self.token_ids)]
        most = [
            min(each + self.answering.max_new_tokens, limit) - 1 for each in prompts
        ]
        for where in find_idle(self.steerings, prompts, most):
            self.session.reporter.warn(
                f"where {where.words} means no token of any prompt or answer, so "
                f"nothing is steered there; {counted(max(most), 'token')} may be read"
            )

    def _written(self, growing: Growing) -> Written:
        text = self.session.encoder.open_text()
        text.extend(growing.token_ids)
        return Written(
            prompt=growing.number // len(self.steerings),
            steering=growing.steering,
            text=text.rest(),
            token_ids=tuple(growing.token_ids),
            ended=growing.ended or "stop",
        )


def plan_writing(
    session: Session,
    prompts: Prompts,
    answering: Answering,
    steerings: Sequence[Deltas],
) -> Writing:
    """Encode prompts and plan their answers; refuse what needs no weights to refuse.

    Args:
        session: The open checkpoint.
        prompts: Each the user's turn under a template, else a text to continue; or a
            chat to go on with.
        answering: How they are answered; a system's turn needs the model's template.
        steerings: As for ``Writing``.

    Raises:
        PromptError: A prompt cannot be encoded or leaves no room for an answer.
        SterError: Another file of the checkpoint is refused, or the run does not fit.
    """
    token_ids = encode_turns(session, PromptSet.of(prompts), answering.system)
    stop_ids = read_stop_ids(session.files)
    room = session.spec.max_position_embeddings - min(map(len, token_ids))
    new_tokens = min(answering.max_new_tokens, room)
    longest = [_longest_reading(session, ids, new_tokens) for ids in token_ids]
    numbers, ends = range(len(steerings)), [*map(needs_prompt, steerings)]
    plan = session.plan(
        [ids for ids in longest for _ in numbers],
        session.spec.num_hidden_layers,
        kinds=[
            # Texts whose prompts end elsewhere may share nothing then.
            (session.spec.rotary_length(len(ids)), number, len(prompt) * ends[number])
            for ids, prompt in zip(longest, token_ids, strict=True)
            for number in numbers
        ],
        head=True,
        logit_rows=1,
        new_tokens=new_tokens,
        repeats=True,
    )
    if not plan.keep:
        session.reporter.warn(
            f"the weights need {megabytes(plan.kept_bytes)} and may use "
            f"{allowed_megabytes(plan.memory_bytes)}, so they are read anew for every "
            "token"
        )
    return Writing(
        session=session,
        token_ids=token_ids,
        stop_ids=stop_ids,
        plan=plan,
        answering=answering,
        steerings=steerings,
    )


def _longest_reading(session: Session, token_ids: Tokens, new_tokens: int) -> Tokens:
    """Stand in, for the plan, for the most tokens that are read at once."""
    if not isinstance(session.spec, ModelSpec):
        return token_ids
    length = session.spec.reading_length(len(token_ids), new_tokens)
    return token_ids if length == len(token_ids) else np.zeros(length, np.int64)


def encode_turns(
    session: Session, prompts: PromptSet, system: str | None
) -> Sequence[Tokens]:
    """Encode prompts after the system turn; refuse those with no room for an answer.

    Raises:
        PromptError: A prompt is too long, or a chat cannot be answered so.
    """
    chats = prompts.conversations_to_answer(system)
    token_ids = session.encoder.encode_conversations(chats)
    session.check_tokens(token_ids)
    limit = session.spec.max_position_embeddings
    for number, ids in enumerate(token_ids, start=1):
        if len(ids) >= limit:
            raise PromptError(
                f"prompt contains {len(ids)} tokens, model context allows fewer than "
                f"{limit}",
                prompt=number,
                found=len(ids),
                expected=limit,
            )
    return token_ids
