"""One wave of a reading: through the blocks, and rows copied out as they pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

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
    adding = Steerings(decoder, [deltas], ((0, length) for length in lengths))
    steered = _pack(decoder, prompts, lengths, adding, layers[-1])
    places = _Places.of(steered, wanted, layers[-1])
    shape = sum(wanted.num_rows), len(layers), decoder.spec.hidden_size
    read = {point: np.empty(shape, np.float32) for point in points}
    inner = inner_points(points)
    top_rows, before = places.after[0], steered.before
    run_blocks(
        decoder,
        before.token_ids,
        before.position_ids,
        steered.parts(decoder, adding, num_blocks=layers[-1] + 1, top_rows=top_rows),
        points=dict.fromkeys(layers, inner) if inner else NO_POINTS,
        look=_Look(decoder, wanted, places, layers, read),
        on_block=on_block,
    )
    return [*read.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Where the wanted rows are. Prompts that begin alike share rows of a stream.

    Args:
        before: Rows of the stream up to the parting, and the place in them of each row
            that is wanted.
        after: The same of the stream after it.
        parting: The layer after which the stream has other rows; None is never.
        top: The last layer, which has these rows alone.
    """

    before: tuple[Ints, Ints | None]
    after: tuple[Ints, Ints | None]
    parting: int | None
    top: int

    @classmethod
    def of(cls, steered: SteeredPrompts, wanted: WantedRows, top: int) -> _Places:
        """Find them."""
        before = after = wanted.find(steered.packed)
        if steered.parting is not None:
            before = wanted.find(steered.before)
        return cls(before=before, after=after, parting=steered.parting, top=top)

    def at(self, layer: int) -> tuple[Ints, Ints | None]:
        """Return those after a layer."""
        if self.parting is not None and layer <= self.parting:
            return self.before
        rows, places = self.after
        return (np.arange(len(rows)) if layer == self.top else rows), places


@dataclass(frozen=True, slots=True)
class _Look(Generic[Array]):
    """Copies the wanted rows out as the stream passes; see ``run_blocks``."""

    decoder: Decoder[Array]
    wanted: WantedRows
    places: _Places
    layers: Sequence[int]
    read: Mapping[str, F32]

    def __call__(self, layer: int, hidden: Array, found: Mapping[str, Array]) -> None:
        """Finish the pending work, and copy rows of a layer that is read."""
        if found or layer not in self.layers:
            self.decoder.materialize(hidden, *found.values())
        if layer not in self.layers:
            return
        rows, places = self.places.at(layer)
        streams = {RESID_POST: hidden, **found}
        for point, of_point in self.read.items():
            copied = self.decoder.rows(streams[point], rows)
            of_point[:, self.layers.index(layer)] = self.wanted.put(copied, places)


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
