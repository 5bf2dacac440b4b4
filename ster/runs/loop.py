"""The block loop: the one place where a stream goes through the blocks.

Reading, scoring and writing all come here. The residual stream is the local variable
``hidden``: it is looked at after a block, before anything is added to it and before the
next block. The last block is no exception: nobody sees the stream after the final norm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from ster.decoder.contract import Cache, Decoder, Points
from ster.runs.streams import Part
from ster.stream.packing import Ints

Array = TypeVar("Array")
NO_POINTS: Mapping[int, frozenset[str]] = MappingProxyType({})


def run_blocks(
    decoder: Decoder[Array],
    token_ids: Ints | Array,
    position_ids: Ints,
    parts: Sequence[Part[Array]],
    *,
    caches: Sequence[Cache[Array]] | None = None,
    points: Mapping[int, frozenset[str]] = NO_POINTS,
    look: Callable[[int, Array, Mapping[str, Array]], None] | None = None,
    on_block: Callable[[int], None] | None = None,
) -> Array:
    """Run blocks over a stream, steering it between them.

    Args:
        decoder: The blocks.
        token_ids: The stream's tokens, (num_tokens,).
        position_ids: Their positions, (num_tokens,).
        parts: The blocks that run, from the first on, in parts that differ in what the
            stream's rows are.
        caches: By layer, the keys and values of the tokens before.
        points: By layer, the points inside its block that are looked at; see
            ``contract.Points``.
        look: Called with each layer, the stream after it, and its points by name; has
            to finish the pending work on the stream. Without it, the loop does so
            wherever a block's weights do not stay in memory.
        on_block: Called with each layer when it is done; the same.

    Returns:
        The wanted rows of the last block, steered.
    """
    hidden = decoder.embed(token_ids, position_ids)
    for part in parts:
        if part.rows is not None:
            hidden = decoder.take(hidden, part.rows)
            hidden = part.steering.add(decoder, hidden, part.start - 1)
        for layer in range(part.start, part.stop):
            with decoder.block(layer) as block:
                cache = None if caches is None else caches[layer]
                # Those of the block before are let go of here.
                inner: Points[Array] | None = None
                if layer in points:
                    inner = Points(wanted=points[layer])
                hidden = block(hidden, part.inputs_of(layer), cache, inner)
                if look is not None:
                    look(layer, hidden, {} if inner is None else inner.found)
                elif on_block is not None or not decoder.keeps_blocks:
                    decoder.materialize(hidden)
            if on_block is not None:
                on_block(layer)
            hidden = part.steering.add(decoder, hidden, layer)
    return hidden
