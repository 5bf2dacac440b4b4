"""The layer-major loop: block by block over a packed stream, reading last-token rows.

The residual stream is the local variable ``hidden``. A row is read after block i's
attention and feed-forward part have been added, and before block i + 1: for the last
block too, so never after the final norm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.decoder.contract import Decoder
from ster.runs.layer_inputs import pack_tokens, plan_waves

Array = TypeVar("Array")


def extract_rows(
    decoder: Decoder[Array],
    prompts: Sequence[Sequence[int]],
    layers: Sequence[int],
    deltas: Mapping[int, NDArray[np.float32]],
    on_block: Callable[[int], None],
) -> NDArray[np.float32]:
    """Read the last token's residual after chosen blocks.

    Args:
        decoder: The blocks.
        prompts: Token ids of the prompts of one wave.
        layers: Block indices, ascending.
        deltas: For some layers, a vector (hidden_size,) that is added to every row
            after the layer has been read.
        on_block: Called with each block's index when it is done.

    Returns:
        (num_prompts, num_layers, hidden_size) f32, whatever the run's precision.
    """
    packed = pack_tokens(decoder, prompts)
    # Equal prompts end in the same row; of the top layer there is no other.
    last_rows, top_rows = np.unique(packed.last_rows, return_inverse=True)
    wave_of = plan_waves(decoder, packed, last_rows, top=layers[-1])
    read = np.empty((len(prompts), len(layers), decoder.config.hidden_size), "f4")
    vectors = {layer: decoder.vector(delta) for layer, delta in deltas.items()}
    hidden = decoder.embed(packed.token_ids)
    for layer in range(layers[-1] + 1):
        with decoder.block(layer) as block:
            hidden = block(hidden, wave_of(layer))
            if layer in layers:
                rows = packed.last_rows if layer < layers[-1] else top_rows
                read[:, layers.index(layer)] = decoder.rows(hidden, rows)
            else:
                decoder.materialize(hidden)
        if layer in vectors:
            hidden = decoder.steer(hidden, vectors[layer])
        on_block(layer)
    return read
