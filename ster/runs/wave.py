"""One wave of a reading: through the blocks, and rows copied out as they pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.decoder.contract import Decoder
from ster.decoder.steerings import Steerings
from ster.decoder.whole import WholeModel
from ster.documents.float32 import find_not_finite
from ster.errors import NumericsError
from ster.points import RESID_POST, inner_points
from ster.runs.loop import NO_POINTS, run_blocks
from ster.runs.rows import WantedRows
from ster.runs.session import Session
from ster.runs.streams import SteeredPrompts, pack_steered
from ster.stream.changes import Deltas
from ster.stream.packing import Ints, Tokens

Array = TypeVar("Array")
F32 = NDArray[np.float32]


def read_rows(
    decoder: Decoder[Array],
    prompts: Sequence[Tokens],
    layers: Sequence[int],
    deltas: Deltas,
    on_block: Callable[[int], None],
    *,
    wanted: WantedRows | None = None,
    points: Sequence[str] = (RESID_POST,),
    prompt_lengths: Sequence[int] | None = None,
) -> list[F32]:
    """Read some tokens at some points of chosen blocks, in one wave.

    Args:
        decoder: The blocks.
        prompts: Token ids of the wave's prompts.
        layers: Block indices, ascending.
        deltas: What is done to rows after their layer has been read.
        on_block: Called with each block's index when it is done.
        wanted: Which tokens; the last of each prompt if not given.
        points: Of ``points.POINTS``, each that is wanted and that the model has.
        prompt_lengths: How many tokens of each come before what it answers with; all of
            them if not given.

    Returns:
        For each point, (num_rows, num_layers, hidden_size) f32, whatever the run's
        precision.
    """
    wanted = WantedRows.last(prompts) if wanted is None else wanted
    lengths = prompt_lengths or [*map(len, prompts)]
    if isinstance(decoder, WholeModel):
        rows = decoder.read_rows(
            prompts, wanted.positions, layers, deltas, on_block, lengths
        )
        return [wanted.reduce(rows)]
    top = layers[-1]
    adding = Steerings(decoder, [deltas], ((0, length) for length in lengths))
    steered = _pack(decoder, prompts, lengths, adding, top)
    # Prompts that begin alike share rows; the top layer has the wanted rows alone.
    distinct, places = wanted.find(steered.packed)
    before = distinct, places
    if steered.parting is not None:
        before = wanted.find(steered.before)
    shape = sum(wanted.num_rows), len(layers), decoder.spec.hidden_size
    read = [np.empty(shape, np.float32) for _ in points]
    inner = inner_points(points)

    def look(layer: int, hidden: Array, found: Mapping[str, Array]) -> None:
        if found or layer not in layers:
            decoder.materialize(hidden, *found.values())
        if layer in layers:
            rows, those = distinct, places
            if steered.parting is not None and layer <= steered.parting:
                rows, those = before
            elif layer == top:
                rows = np.arange(len(distinct))
            streams = {RESID_POST: hidden, **found}
            for point, of_point in zip(points, read, strict=True):
                copied = wanted.put(decoder.rows(streams[point], rows), those)
                of_point[:, layers.index(layer)] = copied

    parts = steered.parts(decoder, adding, num_blocks=top + 1, top_rows=distinct)
    run_blocks(
        decoder,
        steered.before.token_ids,
        steered.before.position_ids,
        parts,
        points=dict.fromkeys(layers, inner) if inner else NO_POINTS,
        look=look,
        on_block=on_block,
    )
    return read


def _pack(
    decoder: Decoder[Array],
    prompts: Sequence[Tokens],
    lengths: Sequence[int],
    adding: Steerings[Array],
    top: int,
) -> SteeredPrompts:
    """Pack prompts; what is done after the top layer is not read."""
    both = zip(prompts, lengths, strict=True)
    which = [adding.treatments.of(0, length, len(ids)) for ids, length in both]
    parting = adding.parting(np.concatenate(which))
    if parting is not None and parting >= top:
        parting = None
    return pack_steered(decoder.spec, prompts, which, parting)


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
    found = find_not_finite(rows)
    if found is None:
        return
    row, layer = found
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
