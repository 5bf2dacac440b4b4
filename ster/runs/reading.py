"""Reading activations: prompts through the plan, wave by wave, checked as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.decoder.contract import Decoder
from ster.decoder.whole import WholeModel
from ster.documents.prompts import check_prompts
from ster.errors import NumericsError
from ster.points import RESID_POST, inner_points
from ster.runs.loop import NO_POINTS, run_blocks
from ster.runs.plan import Plan
from ster.runs.progress import report_block
from ster.runs.session import Session
from ster.runs.streams import Deltas, Steerings, pack_steered
from ster.stream.packing import Tokens

Array = TypeVar("Array")
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A reading that is encoded and planned; no weight is open yet.

    Args:
        session: The open checkpoint.
        prompts: The prompts, verbatim.
        token_ids: Their tokens.
        layers: Block indices, ascending.
        plan: Waves and memory.
        deltas: Vectors added to the stream after their block has been read, by layer.
        label: What a line of progress says before its numbers.
        prompts_per_item: How many prompts count as one in those numbers.
    """

    session: Session
    prompts: Sequence[str]
    token_ids: Sequence[Tokens]
    layers: tuple[int, ...]
    plan: Plan
    deltas: Deltas
    label: str
    prompts_per_item: int

    def waves(self) -> Iterator[tuple[range, F32]]:
        """Run wave by wave.

        Yields:
            The indices of the wave's prompts, and their rows (num_prompts, num_layers,
            hidden_size).

        Raises:
            WeightsError: A weight file is damaged or lacks a tensor.
            NumericsError: A row is infinite or not a number.
        """
        layers = self.layers
        with self.session.open(self.plan) as decoder:
            for number, wave in enumerate(self.plan.waves):
                token_ids = [self.token_ids[index] for index in wave]
                on_block = partial(
                    report_block,
                    self.session,
                    self.plan,
                    number,
                    label=self.label,
                    prompts_per_item=self.prompts_per_item,
                )
                [rows] = read_rows(decoder, token_ids, layers, self.deltas, on_block)
                check_finite(rows, wave, layers, self.session)
                yield wave, rows


def plan_reading(
    session: Session,
    prompts: Sequence[str],
    layers: tuple[int, ...],
    *,
    repeats: bool,
    asked: Sequence[str | None] | None = None,
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
        asked: What each prompt answers, if anything.
        deltas: As for ``Reading``.
        label: As for ``Reading``.
        prompts_per_item: As for ``Reading``.

    Raises:
        PromptError: A prompt is empty or cannot be tokenized.
        TemplateError: The chat template refuses a prompt.
        CapacityError: The run does not fit.
    """
    checked = check_prompts(prompts)
    token_ids = session.encoder.encode(checked, asked)
    session.check_tokens(token_ids)
    _warn_of_long_prompts(session, token_ids)
    num_blocks = layers[-1] + 1
    return Reading(
        session=session,
        prompts=checked,
        token_ids=token_ids,
        layers=layers,
        plan=session.plan(
            token_ids, num_blocks, rows_per_prompt=len(layers), repeats=repeats
        ),
        deltas=deltas or {},
        label=label,
        prompts_per_item=prompts_per_item,
    )


def read_rows(
    decoder: Decoder[Array],
    prompts: Sequence[Tokens],
    layers: Sequence[int],
    deltas: Deltas,
    on_block: Callable[[int], None],
    points: Sequence[str] = (RESID_POST,),
) -> list[F32]:
    """Read the last token at some points of chosen blocks, in one wave.

    Args:
        decoder: The blocks.
        prompts: Token ids of the wave's prompts.
        layers: Block indices, ascending.
        deltas: Added to every row after its layer has been read.
        on_block: Called with each block's index when it is done.
        points: Of ``points.POINTS``, each that is wanted and that the model has.

    Returns:
        For each point, (num_prompts, num_layers, hidden_size) f32, whatever the run's
        precision.
    """
    if isinstance(decoder, WholeModel):
        return [decoder.read_rows(prompts, layers, deltas, on_block)]
    top, steered = layers[-1], pack_steered(decoder.spec, prompts)
    packed = steered.packed
    # Equal prompts end in the same row; the top layer has these last rows alone.
    last_rows, top_rows = np.unique(packed.last_rows, return_inverse=True)
    shape = len(prompts), len(layers), decoder.spec.hidden_size
    read = [np.empty(shape, np.float32) for _ in points]
    inner = inner_points(points)

    def look(layer: int, hidden: Array, found: Mapping[str, Array]) -> None:
        if found or layer not in layers:
            decoder.materialize(hidden, *found.values())
        if layer in layers:
            rows = packed.last_rows if layer < top else top_rows
            for point, of_point in zip(points, read, strict=True):
                stream = hidden if point == RESID_POST else found[point]
                of_point[:, layers.index(layer)] = decoder.rows(stream, rows)

    parts = steered.parts(
        decoder, Steerings(decoder, [deltas]), num_blocks=top + 1, top_rows=last_rows
    )
    run_blocks(
        decoder,
        packed.token_ids,
        packed.position_ids,
        parts,
        points=dict.fromkeys(layers, inner) if inner else NO_POINTS,
        look=look,
        on_block=on_block,
    )
    return read


def check_finite(
    rows: F32, wave: range, layers: Sequence[int], session: Session
) -> None:
    """Refuse rows that are not finite, naming the first such prompt and layer.

    Raises:
        NumericsError: A row holds a value that is infinite or not a number.
    """
    finite = np.isfinite(rows).all(axis=-1)
    if finite.all():
        return
    prompt, layer = (int(each) for each in np.argwhere(~finite)[0])
    facts: dict[str, Any] = {"layer": layers[layer], "prompt": wave[prompt] + 1}
    facts |= {"field": "precision", "found": session.precision}
    sentence = (
        f"layer {layers[layer]} of prompt {wave[prompt] + 1} is not finite at "
        f"--precision {session.precision}"
    )
    if session.precision == "f32":
        cause = "the checkpoint's own weights lead there"
        raise NumericsError(sentence, cause, **facts)
    wider = session.precision == "f16" and session.device != "cpu"
    raise NumericsError(f"{sentence}; use f32{' or bf16' if wider else ''}", **facts)


def _warn_of_long_prompts(session: Session, token_ids: Sequence[Tokens]) -> None:
    limit = session.spec.max_position_embeddings
    for number, ids in enumerate(token_ids, start=1):
        if len(ids) > limit:
            session.reporter.warn(
                f"prompt {number} has {len(ids)} tokens, more than the model's "
                f"max_position_embeddings of {limit}; its later positions are past "
                "what the model was trained on"
            )
