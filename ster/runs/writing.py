"""Writing answers: the prompt in one pass, then one token at a time over all blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.architecture.spec import ModelSpec
from ster.checkpoint.stop_tokens import read_stop_ids
from ster.decoder.contract import Decoder
from ster.decoder.whole import WholeModel
from ster.documents.prompts import check_prompts
from ster.errors import PromptError
from ster.runs.inputs import InputsOf, next_token_inputs, pack_tokens, stream_inputs
from ster.runs.loop import Deltas, bring_vectors, run_blocks
from ster.runs.plan import Plan, allowed_megabytes, megabytes
from ster.runs.sampling import Answering, make_sampler
from ster.runs.scoring import not_finite
from ster.runs.session import Session
from ster.stream.packing import Ints, Tokens

Array = TypeVar("Array")
F32 = NDArray[np.float32]


# Why an answer ended: a stop token, ``max_new_tokens``, or the trained length is full.
Ended = Literal["stop", "length", "context"]


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
        plan: Memory, one wave for each prompt.
        answering: How they are answered.
        steerings: Every prompt is answered under each of them. Each holds for some
            layers a vector (hidden_size,) that is added to every row.
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
        with self.session.open(self.plan) as decoder:
            for number in range(len(self.token_ids)):
                for steering in range(len(self.steerings)):
                    token_ids: list[int] = []
                    pieces = self._write(decoder, number, steering, token_ids)
                    yield Written(
                        prompt=number,
                        steering=steering,
                        text="".join(pieces),
                        token_ids=tuple(token_ids),
                        ended=self._ended(number, len(token_ids)),
                    )

    def stream(self) -> Iterator[str]:
        """Answer the first prompt, yielding text as it becomes readable."""
        with self.session.open(self.plan) as decoder:
            yield from self._write(decoder, 0, 0, [])

    def _ended(self, number: int, num_new: int) -> Ended:
        room = self.session.spec.max_position_embeddings - len(self.token_ids[number])
        if num_new == self.answering.max_new_tokens:
            return "length"
        return "context" if num_new == room else "stop"

    def _write(
        self,
        decoder: Decoder[Any],
        number: int,
        steering: int,
        token_ids: list[int],
    ) -> Iterator[str]:
        """Write one answer; text that is not whole yet waits."""
        sample = make_sampler(self.answering.sampling)
        deltas = self.steerings[steering]

        def checked(logits: F32) -> int:
            if not np.isfinite(logits).all():
                what = "the scores of the next token are"
                raise not_finite(what, self.session, deltas, number + 1)
            return sample(logits)

        text = self.session.encoder.open_text()
        tokens = write_tokens(
            decoder,
            self.token_ids[number],
            deltas=deltas,
            sample=checked,
            stop_ids=self.stop_ids,
            max_new_tokens=self.answering.max_new_tokens,
        )
        for token in tokens:
            token_ids.append(token)
            if piece := text.add(token):
                yield piece
        if piece := text.rest():
            yield piece


def plan_writing(
    session: Session,
    prompts: Iterable[str],
    answering: Answering,
    steerings: Sequence[Deltas],
) -> Writing:
    """Encode prompts and plan their answers; refuse what needs no weights to refuse.

    Args:
        session: The open checkpoint.
        prompts: Each the user's turn under a template, else a text to continue.
        answering: How they are answered; a system's turn needs the model's template.
        steerings: As for ``Writing``.

    Raises:
        PromptError: A prompt cannot be encoded or leaves no room for an answer.
        SterError: Another file of the checkpoint is refused, or the run does not fit.
    """
    checked = check_prompts(prompts)
    token_ids = encode_turns(session, checked, answering.system)
    stop_ids = read_stop_ids(session.files)
    room = session.spec.max_position_embeddings - min(map(len, token_ids))
    new_tokens = min(answering.max_new_tokens, room)
    plan = session.plan(
        [_longest_reading(session, ids, new_tokens) for ids in token_ids],
        session.spec.num_hidden_layers,
        head=True,
        logit_rows=1,
        new_tokens=new_tokens,
        max_prompts=1,
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
    session: Session, prompts: Sequence[str], system: str | None
) -> Sequence[Tokens]:
    """Encode prompts after the system turn; refuse those with no room for an answer.

    Raises:
        PromptError: A prompt is too long, or a system turn has no template.
    """
    before: list[dict[str, str]] = []
    if system is not None:
        before = [{"role": "system", "content": system}]
        label = session.encoder.chat_template
        if label != "applied":
            raise PromptError(
                "a conversation of several turns needs the model's chat template, and "
                f"this run's chat template is {label}",
                field="chat_template",
                found=label,
                expected="applied",
            )
    chats = [[*before, {"role": "user", "content": prompt}] for prompt in prompts]
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


def write_tokens(
    decoder: Decoder[Array],
    prompt: Tokens,
    *,
    deltas: Deltas,
    sample: Callable[[F32], int],
    stop_ids: Collection[int],
    max_new_tokens: int,
) -> Iterator[int]:
    """Continue a prompt, yielding each token as soon as it is known.

    Stops before a stop token, after ``max_new_tokens``, or where the trained length is
    full. It knows token ids only, never text.

    Args:
        decoder: The blocks, with head.
        prompt: Token ids, fewer than ``max_position_embeddings``.
        deltas: For some layers, a vector (hidden_size,) that is added to every row, in
            prompt and generated tokens alike.
        sample: Chooses a token from logits, (vocab_size,).
        stop_ids: The end-of-text tokens.
        max_new_tokens: At most this many.
    """
    if isinstance(decoder, WholeModel):
        how = deltas, sample, stop_ids, max_new_tokens
        yield from decoder.write_tokens(prompt, *how)
        return
    spec, position = decoder.spec, len(prompt)
    num_new = min(max_new_tokens, spec.max_position_embeddings - position)
    vectors = bring_vectors(decoder, deltas)
    top, text, max_tokens = spec.num_hidden_layers - 1, list(prompt), position + num_new
    reads = True
    for _ in range(num_new):
        if reads:
            caches = decoder.make_caches(max_tokens)
            token_ids, position_ids, inputs_of = _whole_text(decoder, text)
        hidden = run_blocks(
            decoder,
            token_ids,
            position_ids,
            inputs_of,
            num_blocks=top + 1,
            vectors=vectors,
            caches=caches,
        )
        token = sample(decoder.unembed(hidden)[-1])
        if token in stop_ids:
            return
        yield token
        text.append(token)
        token_ids, position_ids = np.array([token]), np.array([position])
        inputs_of = next_token_inputs(decoder, position)
        reads = spec.reading_length(position, 1) > position
        position += 1


def _whole_text(
    decoder: Decoder[Array], text: Tokens
) -> tuple[Ints, Ints, InputsOf[Array]]:
    """Return tokens, positions and layer inputs of a text that is read at once."""
    packed = pack_tokens(decoder.spec, [text])
    top, last = decoder.spec.num_hidden_layers - 1, packed.last_rows
    inputs_of = stream_inputs(decoder, packed, top=top, top_rows=last)
    return packed.token_ids, packed.position_ids, inputs_of
