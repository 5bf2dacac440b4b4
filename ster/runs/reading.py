"""Reading activations: prompts through the plan, wave by wave, checked as they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any

from ster.architecture.points import check_model_has
from ster.checkpoint.encoder import ROLES, Encoder
from ster.checkpoint.tokens.bounds import TokenIds
from ster.checkpoint.tokens.located import LocatedTexts, Span
from ster.decoder.contract import Decoder
from ster.documents.activations.read_tokens import ReadTokens
from ster.documents.prompt_sets.value import Prompts, PromptSet
from ster.errors import UsageError, check_word
from ster.points import RESID_POST, inner_points
from ster.runs.places import check_places
from ster.runs.plan import Plan
from ster.runs.progress import report_block
from ster.runs.rows import WantedRows
from ster.runs.session import Session
from ster.runs.showing import describe_tokens
from ster.runs.wave import F32, check_finite, read_rows
from ster.stream.changes import Deltas, needs_prompt
from ster.stream.packing import Tokens
from ster.text import counted
from ster.token_choice import TokenChoice

LAST = TokenChoice(words="last")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingChoice:
    """What is read of prompts.

    Args:
        tokens: Which tokens of each.
        points: Where in a block.
        asked: What each prompt answers, if anything.
        role: Whose message a prompt is that answers nothing: ``user`` or ``assistant``.
        describe: It is to be said which tokens the rows are, and whose.
    """

    tokens: TokenChoice = LAST
    points: tuple[str, ...] = (RESID_POST,)
    asked: Sequence[str | None] | None = None
    role: str = "user"
    describe: bool = False

    @property
    def locates(self) -> bool:
        """Whether it has to be known which tokens are the text's own."""
        tokens = self.tokens
        return self.describe or tokens.needs_text or tokens.function is not None


LAST_ROWS = ReadingChoice()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A reading that is encoded and planned; no weight is open yet.

    Args:
        session: The open checkpoint.
        prompts: The prompts, verbatim.
        labels: What else is known of each, by name.
        token_ids: Their tokens.
        own: Which of these are the text's own, where that is known.
        layers: Block indices, ascending.
        choice: What is read of the prompts.
        wanted: The tokens that are read.
        plan: Waves and memory.
        deltas: What is done to the stream after a block has been read, by layer.
        label: What a line of progress says before its numbers.
        prompts_per_item: How many prompts count as one in those numbers.
        prompt_lengths: How many tokens of each come before what it answers with, if
            that matters.
    """

    session: Session
    prompts: Sequence[str]
    labels: Mapping[str, Sequence[object]]
    token_ids: Sequence[TokenIds]
    own: Sequence[Span | None]
    layers: tuple[int, ...]
    choice: ReadingChoice
    wanted: WantedRows
    plan: Plan
    deltas: Deltas
    label: str
    prompts_per_item: int
    prompt_lengths: Sequence[int] | None = None

    def first(self, num_prompts: int) -> Reading:
        """Take the first prompts of what was planned."""
        return replace(
            self,
            prompts=self.prompts[:num_prompts],
            labels={name: each[:num_prompts] for name, each in self.labels.items()},
            token_ids=self.token_ids[:num_prompts],
            own=self.own[:num_prompts],
            wanted=self.wanted.take(range(num_prompts)),
            prompt_lengths=_take(self.prompt_lengths, range(num_prompts)),
        )

    def waves(self) -> Iterator[tuple[range, list[F32]]]:
        """Run wave by wave.

        Yields:
            The indices of the wave's prompts, and for each point their rows (num_rows,
            num_layers, hidden_size).

        Raises:
            WeightsError: A weight file is damaged or lacks a tensor.
            NumericsError: A row is infinite or not a number.
        """
        with self.session.open(self.plan) as decoder:
            for number, wave in enumerate(self.plan.waves):
                # In no variable, or a wave's rows would live until the next has its.
                yield wave, self._read(decoder, number, wave)

    def _read(self, decoder: Decoder[Any], number: int, wave: range) -> list[F32]:
        """Run one wave and check what it gives."""
        wanted = self.wanted.take(wave)
        on_block = partial(
            report_block,
            self.session,
            self.plan,
            number,
            label=self.label,
            prompts_per_item=self.prompts_per_item,
        )
        arrays = read_rows(
            decoder,
            [self.token_ids[index] for index in wave],
            self.layers,
            self.deltas,
            on_block,
            wanted=wanted,
            points=self.choice.points,
            prompt_lengths=_take(self.prompt_lengths, wave),
        )
        numbers = wanted.prompt_index + wave.start
        for rows in arrays:
            check_finite(rows, numbers, self.layers, self.session)
        return arrays


def plan_reading(
    session: Session,
    prompts: Prompts,
    layers: tuple[int, ...],
    *,
    repeats: bool,
    choice: ReadingChoice = LAST_ROWS,
    deltas: Deltas | None = None,
    label: str = "extracting prompt",
    prompts_per_item: int = 1,
) -> Reading:
    """Encode prompts and plan their reading; refuse what needs no weights to refuse.

    Args:
        session: The open checkpoint.
        prompts: The prompts.
        layers: Block indices, ascending.
        repeats: More runs will follow, so blocks stay where they fit.
        choice: What is read of them.
        deltas: As for ``Reading``.
        label: As for ``Reading``.
        prompts_per_item: As for ``Reading``.

    Raises:
        PromptError: A prompt is empty or cannot be tokenized, or has no such token.
        TemplateError: The chat template refuses a prompt.
        CapacityError: The run does not fit.
        CheckpointError: The model's blocks have no such point.
        UsageError: Something is to be done to tokens that a prompt does not have.
    """
    check_model_has(choice.points, session.spec)
    taken = PromptSet.of(prompts)
    located = _encode(session.encoder, taken, choice)
    token_ids = located.token_ids
    session.check_tokens(token_ids)
    _warn_of_long_prompts(session, token_ids, in_pairs=prompts_per_item == 2)
    wanted = want_rows(session.encoder, located, choice.tokens)
    work = _rows_held(wanted, len(layers), choice)
    lengths = None
    if deltas and needs_prompt(deltas):
        lengths = _prompt_lengths(session.encoder, token_ids, choice.asked)
        check_places(deltas, lengths, [*map(len, token_ids)])
        work["kinds"] = session.kinds(token_ids, lengths)
    return Reading(
        session=session,
        prompts=taken.prompts,
        labels=taken.labels,
        token_ids=token_ids,
        own=located.own,
        layers=layers,
        choice=choice,
        wanted=wanted,
        plan=session.plan(token_ids, layers[-1] + 1, repeats=repeats, **work),
        deltas=deltas or {},
        label=label,
        prompts_per_item=prompts_per_item,
        prompt_lengths=lengths,
    )


def plan_token_reading(
    session: Session,
    token_ids: Sequence[TokenIds],
    layers: tuple[int, ...],
    positions: Sequence[Sequence[int]],
    *,
    label: str,
) -> Reading:
    """Plan a reading of token ids, which need no tokenizer; no text is known of them.

    Args:
        session: The open checkpoint.
        token_ids: Those of each text.
        layers: Block indices, ascending.
        positions: The tokens of each that are read, ascending.
        label: As for ``Reading``.

    Raises:
        PromptError: An id is outside the model's vocabulary.
        CapacityError: The run does not fit.
    """
    session.check_tokens(token_ids)
    _warn_of_long_prompts(session, token_ids)
    choice = ReadingChoice(tokens=TokenChoice(words="all"))
    wanted = WantedRows(positions=positions)
    work = _rows_held(wanted, len(layers), choice)
    return Reading(
        session=session,
        prompts=[""] * len(token_ids),
        labels={},
        token_ids=token_ids,
        own=[None] * len(token_ids),
        layers=layers,
        choice=choice,
        wanted=wanted,
        plan=session.plan(token_ids, layers[-1] + 1, repeats=False, **work),
        deltas={},
        label=label,
        prompts_per_item=1,
    )


def _prompt_lengths(
    encoder: Encoder,
    token_ids: Sequence[TokenIds],
    asked: Sequence[str | None] | None,
) -> list[int]:
    """Count the tokens of each text that come before its answer: all, if it is none."""
    lengths = [*map(len, token_ids)]
    if asked is None:
        return lengths
    starts = encoder.find_starts(token_ids, asked)
    both = zip(asked, starts, lengths, strict=True)
    return [length if each is None else start for each, start, length in both]


def _take(numbers: Sequence[int] | None, which: range) -> Sequence[int] | None:
    return None if numbers is None else [numbers[each] for each in which]


def _rows_held(
    wanted: WantedRows, num_layers: int, choice: ReadingChoice
) -> dict[str, Any]:
    """Count for ``plan.Work`` what reading holds beside a stream."""
    # Rows of a layer are copied out, put in order and checked, and widened for their
    # mean: as measured, with what an allocator keeps of it.
    copies = 0 if choice.tokens.is_last else 5 if wanted.is_mean else 3
    kept = num_layers * len(choice.points)
    both = zip(wanted.num_rows, wanted.num_read, strict=True)
    return {
        "rows": [kept * rows + copies * read for rows, read in both],
        "rows_per_token": kept + copies,
        "inner_points": len(inner_points(choice.points)),
    }


def want_rows(
    encoder: Encoder, located: LocatedTexts, tokens: TokenChoice
) -> WantedRows:
    """Choose the tokens that are read of each prompt.

    Raises:
        PromptError: A prompt has no such token, or its own are not known.
    """
    token_ids = located.token_ids
    if tokens.is_last:
        return WantedRows.last(token_ids)
    shown: Iterable[ReadTokens | None] = repeat(None, len(token_ids))
    if tokens.function is not None:
        shown = describe_tokens(encoder, token_ids, located.own).by_prompt()
    positions = [
        tokens.positions(len(ids), own, number, each)
        for number, (ids, own, each) in enumerate(
            zip(token_ids, located.own, shown, strict=True), start=1
        )
    ]
    return WantedRows(positions=positions, is_mean=tokens.is_mean)


def _encode(
    encoder: Encoder, prompts: PromptSet, choice: ReadingChoice
) -> LocatedTexts:
    role, asked = choice.role, choice.asked
    check_word("role", role, ROLES)
    if prompts.chats is None:
        return encoder.encode_texts(
            prompts.prompts, asked, role=role, locate=choice.locates
        )
    if role != "user" or asked is not None:
        raise UsageError(
            "a chat has its own roles, so role and asked are not for it",
            field="role",
            found=role,
        )
    return encoder.locate_conversations(prompts.conversations, locate=choice.locates)


def _warn_of_long_prompts(
    session: Session, token_ids: Sequence[Tokens], *, in_pairs: bool = False
) -> None:
    """Name the first, and count the others: they may be very many."""
    limit = session.spec.max_position_embeddings
    long = [number for number, ids in enumerate(token_ids) if len(ids) > limit]
    if not long:
        return
    first, rest = long[0], len(long) - 1
    noun, which = "prompt", f"prompt {first + 1}"
    if in_pairs:
        noun, (pair, is_negative) = "side", divmod(first, 2)
        side = "negative" if is_negative else "positive"
        which = f"the {side} side of pair {pair + 1}"
    verb = "has" if rest == 1 else "have"
    others = f"; so {verb} {counted(rest, f'other {noun}')}" if rest else ""
    session.reporter.warn(
        f"{which} has {len(token_ids[first])} tokens, more than the model's "
        f"max_position_embeddings of {limit}; its later positions are past what the "
        f"model was trained on{others}"
    )
