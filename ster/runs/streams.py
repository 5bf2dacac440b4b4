"""Prompts under several steerings as one stream, which is one until they part.

A steering begins after some block. Up to there the stream is the same whatever is done
later, so the blocks below run once for all steerings. After it, a prompt has rows of
its own for each of them; and so have tokens that begin prompts alike, but to which
different things are done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from ster.architecture.spec import ModelSpec
from ster.decoder.contract import Decoder
from ster.decoder.steerings import Steering, Steerings
from ster.runs.inputs import InputsOf, stream_inputs
from ster.stream.packing import (
    Ints,
    PackedPrompts,
    Tokens,
    pack_marked,
    pack_prompts,
)
from ster.stream.texts import Entering

Array = TypeVar("Array")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[Array]):
    """Consecutive blocks in which a stream has the same rows.

    Args:
        start: The first block.
        stop: The block after the last.
        inputs_of: What each layer needs to know of the stream.
        steering: What is added after these blocks; with ``rows`` after the one before
            them, too.
        rows: Which rows of the part before it begins with; None is all.
    """

    start: int
    stop: int
    inputs_of: InputsOf[Array]
    steering: Steering[Array]
    rows: Ints | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeredPrompts:
    """Prompts, each under one steering, packed into a stream.

    Args:
        packed: The stream after the parting.
        which: What is done to each of its rows, by number, (num_tokens,).
        before: The stream before the parting; the same if they never part.
        parting: They part after this layer; None is never.
        rows: For each row the one before the parting that it comes from; None where
            they never part.
    """

    packed: PackedPrompts
    which: Ints
    before: PackedPrompts
    parting: int | None = None
    rows: Ints | None = None

    def parts(
        self,
        decoder: Decoder[Array],
        steerings: Steerings[Array],
        *,
        num_blocks: int,
        top_rows: Ints | None,
        entering: Entering[Ints] | None = None,
    ) -> list[Part[Array]]:
        """Cut the blocks where the steerings part.

        Args:
            decoder: The blocks.
            steerings: Those of the prompts.
            num_blocks: Blocks that run.
            top_rows: Rows of ``packed`` that are wanted of the last, ascending and
                distinct; None is all.
            entering: Where caches put the keys of ``packed``, if there are any.
        """
        top = num_blocks - 1
        inputs_of = stream_inputs(
            decoder, self.packed, top=top, top_rows=top_rows, entering=entering
        )
        steering = steerings.of(self.which, top, top_rows)
        if self.parting is None or self.rows is None:
            return [
                Part(start=0, stop=num_blocks, inputs_of=inputs_of, steering=steering)
            ]
        start, rows = self.parting + 1, self.rows
        before = stream_inputs(
            decoder,
            self.before,
            top=num_blocks,  # which does not run: all rows are wanted of each
            top_rows=None,
            entering=None if entering is None else entering.taken_from(rows),
        )
        below = steerings.below(self.parting, int(self.which[0]))
        if start == num_blocks and top_rows is not None:
            rows = rows[top_rows]
        return [
            Part(start=0, stop=start, inputs_of=before, steering=below),
            Part(
                start=start,
                stop=num_blocks,
                inputs_of=inputs_of,
                steering=steering,
                rows=rows,
            ),
        ]


def pack_steered(
    spec: ModelSpec,
    prompts: Sequence[Tokens],
    which: Sequence[Ints] | None = None,
    parting: int | None = None,
) -> SteeredPrompts:
    """Pack prompts; tokens with other rotary frequencies or steerings are not shared.

    Args:
        spec: What the decoder is.
        prompts: Their tokens.
        which: What is done to each token of each, by number, as ``Treatments`` has it;
            the first thing if not given.
        parting: The layer after which what is done differs; None is never.
    """
    lengths = [spec.rotary_length(len(ids)) for ids in prompts]
    before = pack_prompts(prompts, lengths)
    if which is None or parting is None:  # then any of them does for all rows
        first = 0 if which is None else int(which[0][0])
        steering = np.full(before.num_tokens, first)
        return SteeredPrompts(packed=before, which=steering, before=before)
    packed, steering = pack_marked(prompts, lengths, which)
    rows = np.zeros(packed.num_tokens, np.int64)
    for number in range(len(prompts)):
        rows[packed.rows_of(number)] = before.rows_of(number)
    return SteeredPrompts(
        packed=packed,
        which=steering,
        before=before,
        parting=parting,
        rows=rows,
    )
