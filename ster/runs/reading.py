"""Reading activations: prompts through the plan, wave by wave, checked as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.checkpoint.encoder import Encoder, check_role
from ster.checkpoint.tokens.bounds import TokenIds
from ster.checkpoint.tokens.located import Span
from ster.decoder.contract import Decoder
from ster.decoder.whole import WholeModel
from ster.documents.activations.read_tokens import ReadTokens
from ster.documents.prompt_sets.value import Prompts, PromptSet
from ster.errors import NumericsError, UsageError
from ster.runs.loop import run_blocks
from ster.runs.plan import Plan
from ster.runs.progress import report_block
from ster.runs.rows import WantedRows
from ster.runs.session import Session
from ster.runs.showing import describe_tokens
from ster.runs.streams import Deltas, Steerings, pack_steered
from ster.stream.packing import Ints, Tokens
from ster.token_choice import TokenChoice

Array = TypeVar("Array")
F32 = NDArray[np.float32]
LAST = TokenChoice(words="last")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A reading that is encoded and planned; no weight is open yet.

    Args:
        session: The open checkpoint.
        prompts: The prompts, verbatim.
        labels: What else is known of each, by name.
        token_ids: Their tokens.
        own: Which of these are the text's own; None where nobody asked.
        layers: Block indices, ascending.
        tokens: Which tokens were asked for, ...
        wanted: ... and which these are.
        plan: Waves and memory.
        deltas: Vectors added to the stream after their block has been read, by layer.
        label: What a line of progress says before its numbers.
        prompts_per_item: How many prompts count as one in those numbers.
    """

    session: Session
    prompts: Sequence[str]
    labels: Mapping[str, Sequence[object]]
    token_ids: Sequence[TokenIds]
    own: Sequence[Span | None] | None
    layers: tuple[int, ...]
    tokens: TokenChoice
    wanted: WantedRows
    plan: Plan
    deltas: Deltas
    label: str
    prompts_per_item: int

    def first(self, num_prompts: int) -> Reading:
        """Take the first prompts of what was planned."""
        return replace(
            self,
            prompts=self.prompts[:num_prompts],
            labels={name: each[:num_prompts] for name, each in self.labels.items()},
            token_ids=self.token_ids[:num_prompts],
            own=None if self.own is None else self.own[:num_prompts],
            wanted=self.wanted.take(range(num_prompts)),
        )

    def waves(self) -> Iterator[tuple[range, F32]]:
        """Run wave by wave.

        Yields:
            The indices of the wave's prompts, and their rows (num_rows, num_layers,
            hidden_size).

        Raises:
            WeightsError: A weight file is damaged or lacks a tensor.
            NumericsError: A row is infinite or not a number.
        """
        layers = self.layers
        with self.session.open(self.plan) as decoder:
            for number, wave in enumerate(self.plan.waves):
                token_ids = [self.token_ids[index] for index in wave]
                wanted = self.wanted.take(wave)
                on_block = partial(
                    report_block,
                    self.session,
                    self.plan,
                    number,
                    label=self.label,
                    prompts_per_item=self.prompts_per_item,
                )
                rows = read_rows(
                    decoder, token_ids, layers, self.deltas, on_block, wanted=wanted
                )
                numbers = wanted.prompt_index + wave.start
                check_finite(rows, numbers, layers, self.session)
                yield wave, rows


def plan_reading(
    session: Session,
    prompts: Prompts,
    layers: tuple[int, ...],
    *,
    repeats: bool,
    asked: Sequence[str | None] | None = None,
    role: str = "user",
    tokens: TokenChoice = LAST,
    locate: bool = False,
    deltas: Deltas | None = None,
    label: str = "extracting prompt",
    prompts_per_item: int = 1,
) -> Reading:
    """Encode prompts and plan their reading; refuse what needs no weights to refuse.

    Args:
        session: The open checkpoint.
        prompts: The prompts; those that are chats are read whole.
        layers: Block indices, ascending.
        repeats: More runs will follow, so blocks stay where they fit.
        asked: What each prompt answers, if anything.
        role: Whose message a prompt is that answers nothing: ``user`` or ``assistant``.
        tokens: Which tokens of each are read.
        locate: Whether to find out in any case which tokens are the text's own.
        deltas: As for ``Reading``.
        label: As for ``Reading``.
        prompts_per_item: As for ``Reading``.

    Raises:
        PromptError: A prompt is empty or cannot be tokenized, or has no such token.
        TemplateError: The chat template refuses a prompt.
        CapacityError: The run does not fit.
    """
    taken = PromptSet.of(prompts)
    token_ids, own = _encode(
        session,
        taken,
        asked,
        role,
        locate=locate or tokens.needs_text or tokens.function is not None,
    )
    session.check_tokens(token_ids)
    _warn_of_long_prompts(session, token_ids)
    wanted = want_rows(session.encoder, token_ids, own, tokens)
    # Rows of a layer are copied out and put in order, and widened for their mean.
    copies = 0 if tokens.is_last else 4 if wanted.is_mean else 2
    both = zip(wanted.num_rows, wanted.num_read, strict=True)
    return Reading(
        session=session,
        prompts=taken.prompts,
        labels=taken.labels,
        token_ids=token_ids,
        own=own,
        layers=layers,
        tokens=tokens,
        wanted=wanted,
        plan=session.plan(
            token_ids,
            layers[-1] + 1,
            rows=[len(layers) * rows + copies * read for rows, read in both],
            rows_per_token=len(layers) + copies,
            repeats=repeats,
        ),
        deltas=deltas or {},
        label=label,
        prompts_per_item=prompts_per_item,
    )


def want_rows(
    encoder: Encoder,
    token_ids: Sequence[TokenIds],
    own: Sequence[Span | None] | None,
    tokens: TokenChoice,
) -> WantedRows:
    """Choose the tokens that are read of each prompt.

    Raises:
        PromptError: A prompt has no such token, or its own are not known.
    """
    if tokens.is_last:
        return WantedRows.last(token_ids)
    shown: Sequence[ReadTokens | None] = [None] * len(token_ids)
    if tokens.function is not None:
        shown = [
            describe_tokens(encoder, [ids], None if own is None else [own[number]])
            for number, ids in enumerate(token_ids)
        ]
    positions = [
        tokens.positions(
            len(ids), None if own is None else own[number], number + 1, shown[number]
        )
        for number, ids in enumerate(token_ids)
    ]
    return WantedRows(positions=positions, is_mean=tokens.is_mean)


def read_rows(
    decoder: Decoder[Array],
    prompts: Sequence[Tokens],
    layers: Sequence[int],
    deltas: Deltas,
    on_block: Callable[[int], None],
    *,
    wanted: WantedRows | None = None,
) -> F32:
    """Read some tokens' residuals after chosen blocks, in one wave.

    Args:
        decoder: The blocks.
        prompts: Token ids of the wave's prompts.
        layers: Block indices, ascending.
        deltas: Added to every row after its layer has been read.
        on_block: Called with each block's index when it is done.
        wanted: Which tokens; the last of each prompt if not given.

    Returns:
        (num_rows, num_layers, hidden_size) f32, whatever the run's precision.
    """
    wanted = WantedRows.last(prompts) if wanted is None else wanted
    if isinstance(decoder, WholeModel):
        rows = decoder.read_rows(prompts, wanted.positions, layers, deltas, on_block)
        return wanted.reduce(rows)
    top, steered = layers[-1], pack_steered(decoder.spec, prompts)
    # Prompts that begin alike share rows; the top layer has the wanted rows alone.
    found = wanted.find(steered.packed)
    distinct, places = np.unique(found, return_inverse=True)
    top_rows = np.arange(len(distinct))
    is_whole = len(distinct) == len(found) and bool((distinct == found).all())
    shape = sum(wanted.num_rows), len(layers), decoder.spec.hidden_size
    read = np.empty(shape, np.float32)

    def look(layer: int, hidden: Array) -> None:
        if layer in layers:
            rows = decoder.rows(hidden, distinct if layer < top else top_rows)
            rows = rows if is_whole else rows[places]
            read[:, layers.index(layer)] = wanted.reduce(rows)
        else:
            decoder.materialize(hidden)

    parts = steered.parts(
        decoder, Steerings(decoder, [deltas]), num_blocks=top + 1, top_rows=distinct
    )
    run_blocks(
        decoder,
        steered.packed.token_ids,
        steered.packed.position_ids,
        parts,
        look=look,
        on_block=on_block,
    )
    return read


def check_finite(
    rows: F32, prompts: Ints, layers: Sequence[int], session: Session
) -> None:
    """Refuse rows that are not finite, naming the first such prompt and layer.

    Args:
        rows: (num_rows, num_layers, hidden_size).
        prompts: The prompt of each row, counted from 0.
        layers: The layers of axis 1.
        session: What read them.

    Raises:
        NumericsError: A row holds a value that is infinite or not a number.
    """
    finite = np.isfinite(rows).all(axis=-1)
    if finite.all():
        return
    row, layer = (int(each) for each in np.argwhere(~finite)[0])
    prompt = int(prompts[row]) + 1
    facts: dict[str, Any] = {"layer": layers[layer], "prompt": prompt}
    facts |= {"field": "precision", "found": session.precision}
    sentence = (
        f"layer {layers[layer]} of prompt {prompt} is not finite at "
        f"--precision {session.precision}"
    )
    if session.precision == "f32":
        cause = "the checkpoint's own weights lead there"
        raise NumericsError(sentence, cause, **facts)
    wider = session.precision == "f16" and session.device != "cpu"
    raise NumericsError(f"{sentence}; use f32{' or bf16' if wider else ''}", **facts)


def _encode(
    session: Session,
    prompts: PromptSet,
    asked: Sequence[str | None] | None,
    role: str,
    *,
    locate: bool,
) -> tuple[Sequence[TokenIds], Sequence[Span | None] | None]:
    encoder = session.encoder
    check_role(role)
    if prompts.chats is not None:
        if role != "user" or asked is not None:
            raise UsageError(
                "a chat has its own roles, so role and asked are not for it",
                field="role",
                found=role,
            )
        located = encoder.locate_conversations(prompts.conversations, locate=locate)
    elif role == "user" and not locate:
        return encoder.encode(prompts.prompts, asked), None
    else:
        located = encoder.locate(prompts.prompts, asked, role=role)
    return located.token_ids, located.own


def _warn_of_long_prompts(session: Session, token_ids: Sequence[Tokens]) -> None:
    limit = session.spec.max_position_embeddings
    for number, ids in enumerate(token_ids, start=1):
        if len(ids) > limit:
            session.reporter.warn(
                f"prompt {number} has {len(ids)} tokens, more than the model's "
                f"max_position_embeddings of {limit}; its later positions are past "
                "what the model was trained on"
            )
