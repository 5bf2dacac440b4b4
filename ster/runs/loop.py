"""The block loop: the one place where a stream goes through the blocks.

Reading, scoring and writing all come here. The residual stream is the local variable
``hidden``: it is looked at after a block, before anything is added to it and before the
next block. The last block is no exception: nobody sees the stream after the final norm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.decoder.contract import Cache, Decoder
from ster.runs.inputs import InputsOf
from ster.stream.packing import Ints

Array = TypeVar("Array")
# By layer, a vector (hidden_size,) that is added to every row after the layer.
Deltas = Mapping[int, NDArray[np.float32]]


def run_blocks(
    decoder: Decoder[Array],
    token_ids: Ints,
    position_ids: Ints,
    inputs_of: InputsOf[Array],
    *,
    num_blocks: int,
    vectors: Mapping[int, Array],
    caches: Sequence[Cache[Array]] | None = None,
    look: Callable[[int, Array], None] | None = None,
) -> Array:
    """Run blocks over a stream, steering it between them.

    Args:
        decoder: The blocks.
        token_ids: The stream's tokens, (num_tokens,).
        position_ids: Their positions, (num_tokens,).
        inputs_of: What each layer needs to know of the stream.
        num_blocks: Blocks that run, from the first on.
        vectors: By layer, the vector that is added to every row after the layer.
        caches: By layer, the keys and values of the tokens before.
        look: Called with each layer and the stream after it; has to finish the pending
            work on the stream. Without it, the loop does so wherever a block's weights
            do not stay in memory.

    Returns:
        The wanted rows of the last block, steered.
    """
    hidden = decoder.embed(token_ids, position_ids)
    for layer in range(num_blocks):
        with decoder.block(layer) as block:
            cache = None if caches is None else caches[layer]
            hidden = block(hidden, inputs_of(layer), cache)
            if look is not None:
                look(layer, hidden)
            elif not decoder.keeps_blocks:
                decoder.materialize(hidden)
        if layer in vectors:
            hidden = decoder.steer(hidden, vectors[layer])
    return hidden


def bring_vectors(decoder: Decoder[Array], deltas: Deltas) -> dict[int, Array]:
    """Turn the vector of each layer into the decoder's own array."""
    return {layer: decoder.vector(delta) for layer, delta in deltas.items()}
