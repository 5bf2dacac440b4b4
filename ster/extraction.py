"""The layer-major loop: block by block over a packed stream, reading last-token rows.

The residual stream is the local variable ``hidden``. A row is read after block i's
attention and feed-forward part have been added, and before block i + 1: for the last
block too, so never after the final norm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.attention import plan_attention
from ster.decoder.contract import Decoder, Wave
from ster.decoder.rope import rotary_length, rotary_tables
from ster.packing import Ints, PackedPrompts, pack_prompts

Array = TypeVar("Array")


def extract_rows(
    decoder: Decoder[Array],
    prompts: Sequence[Sequence[int]],
    layers: Sequence[int],
    on_block: Callable[[int], None],
) -> NDArray[np.float32]:
    """Read the last token's residual after chosen blocks.

    Args:
        decoder: The blocks.
        prompts: Token ids of the prompts of one wave.
        layers: Block indices, ascending.
        on_block: Called with each block's index when it is done.

    Returns:
        (num_prompts, num_layers, hidden_size) f32, whatever the run's precision.
    """
    rope = decoder.config.rope
    packed = pack_prompts(prompts, [rotary_length(rope, len(p)) for p in prompts])
    # Equal prompts end in the same row.
    last_rows, prompt_rows = np.unique(packed.last_rows, return_inverse=True)
    wave_of = _plan_waves(decoder, packed, last_rows, top=layers[-1])
    read = np.empty((len(last_rows), len(layers), decoder.config.hidden_size), "f4")
    hidden = decoder.embed(packed.token_ids)
    for layer in range(layers[-1] + 1):
        with decoder.block(layer) as block:
            hidden = block(hidden, wave_of(layer))
            if layer == layers[-1]:
                read[:, -1] = decoder.rows(hidden, np.arange(len(last_rows)))
            elif layer in layers:
                read[:, layers.index(layer)] = decoder.rows(hidden, last_rows)
            else:
                decoder.materialize(hidden)
        on_block(layer)
    return read[prompt_rows]


def _plan_waves(
    decoder: Decoder[Array], packed: PackedPrompts, last_rows: Ints, top: int
) -> Callable[[int], Wave[Array]]:
    """Return what tells a layer its wave: one for each window, and one for the top.

    Of the top layer, only the rows that are read are computed.
    """
    config = decoder.config
    rotary = rotary_tables(
        config.rope, config.head_dim, packed.position_ids, packed.rotary_lengths
    )

    @cache
    def wave(window: int | None, is_top: bool) -> Wave[Array]:
        attention = plan_attention(
            packed,
            window=window,
            max_pairs=decoder.max_attention_pairs,
            rows=last_rows if is_top else None,
        )
        return decoder.wave(rotary, attention)

    return lambda layer: wave(config.sliding_windows[layer], layer == top)
