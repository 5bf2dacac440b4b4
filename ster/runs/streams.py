"""Prompts under several steerings as one stream, which is one until they part.

A steering's first vector is added after some block. Up to there the stream is the same
whatever is added later, so the blocks below run once for all steerings. After it, a
prompt has rows of its own for each of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.architecture.spec import ModelSpec
from ster.decoder.contract import Decoder
from ster.runs.inputs import InputsOf, stream_inputs
from ster.stream.packing import Ints, PackedPrompts, Tokens, pack_prompts
from ster.stream.texts import Entering

Array = TypeVar("Array")
# By layer, a vector (hidden_size,) that is added to every row after the layer.
Deltas = Mapping[int, NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering(Generic[Array]):
    """What is added to the rows of a stream.

    Args:
        vectors: By layer, the vectors that are added after it, one for each steering,
            (num_steerings, hidden_size).
        which: The steering of each row, (num_tokens,); None is the first for all.
        top: After this layer ...
        which_at_top: ... there are other rows, with these steerings.
    """

    vectors: Mapping[int, Array]
    which: Ints | None = None
    top: int | None = None
    which_at_top: Ints | None = None

    def add(self, decoder: Decoder[Array], hidden: Array, layer: int) -> Array:
        """Add what belongs after a layer, if anything does."""
        if layer not in self.vectors:
            return hidden
        which = self.which_at_top if layer == self.top else self.which
        return decoder.steer(hidden, self.vectors[layer], which)


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


class Steerings(Generic[Array]):
    """Steerings as a decoder holds them during a run.

    Args:
        decoder: The blocks.
        deltas: What each of them adds.
    """

    def __init__(self, decoder: Decoder[Array], deltas: Sequence[Deltas]) -> None:
        self._decoder, self._deltas = decoder, deltas
        nothing = np.zeros(decoder.spec.hidden_size, np.float32)
        self._vectors = {
            layer: decoder.vectors(
                np.stack([each.get(layer, nothing) for each in deltas])
            )
            for layer in sorted({layer for each in deltas for layer in each})
        }

    def parting(self, used: Collection[int] | Ints) -> int | None:
        """Find the layer after which streams of some steerings are no longer one."""
        first, *others = (self._deltas[each] for each in sorted(set(used)))
        for layer in self._vectors:
            for other in others:
                if not np.array_equal(first.get(layer, 0.0), other.get(layer, 0.0)):
                    return layer
        return None

    def of(
        self, which: Ints, top: int | None = None, top_rows: Ints | None = None
    ) -> Steering[Array]:
        """Return what is added to rows, each with its steering.

        Args:
            which: The steering of each row.
            top: After this layer there are other rows, ...
            top_rows: ... which are these.
        """
        if len(self._deltas) == 1:
            return Steering(vectors=self._vectors)
        at_top = which if top_rows is None else which[top_rows]
        return Steering(
            vectors=self._vectors, which=which, top=top, which_at_top=at_top
        )

    def below(self, layer: int, which: int) -> Steering[Array]:
        """Return what one steering adds before a layer, as others do."""
        vectors = {
            each: self._decoder.take(vectors, np.array([which]))
            for each, vectors in self._vectors.items()
            if each < layer
        }
        return Steering(vectors=vectors)


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeredPrompts:
    """Prompts, each under one steering, packed into a stream.

    Args:
        packed: The stream after the parting.
        which: The steering of each of its rows, (num_tokens,).
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
    which: Sequence[int] | Ints | None = None,
    parting: int | None = None,
) -> SteeredPrompts:
    """Pack prompts; those with other rotary frequencies or steerings share no tokens.

    Args:
        spec: What the decoder is.
        prompts: Their tokens.
        which: The steering of each; the first if not given.
        parting: The layer after which the steerings part; None is never.
    """
    lengths = [spec.rotary_length(len(ids)) for ids in prompts]
    before = pack_prompts(prompts, lengths)
    if which is None or parting is None:  # then any of them does for all rows
        steering = np.full(before.num_tokens, 0 if which is None else which[0])
        return SteeredPrompts(packed=before, which=steering, before=before)
    packed = pack_prompts(prompts, lengths, [*map(int, which)])
    steering = np.zeros(packed.num_tokens, np.int64)
    rows = np.zeros(packed.num_tokens, np.int64)
    for number, each in enumerate(which):
        own = packed.rows_of(number)
        steering[own], rows[own] = each, before.rows_of(number)
    return SteeredPrompts(
        packed=packed,
        which=steering,
        before=before,
        parting=parting,
        rows=rows,
    )
