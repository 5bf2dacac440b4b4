"""What belongs to a stream, layer by layer: rotary tables, and who attends to whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import numpy as np

from ster.decoder.contract import Decoder, Wave
from ster.stream.attention import next_token_attention, plan_attention
from ster.stream.packing import Ints, PackedPrompts, pack_prompts
from ster.stream.rotary import rotary_length, rotary_tables

Array = TypeVar("Array")


def pack_tokens(
    decoder: Decoder[Array], prompts: Sequence[Sequence[int]]
) -> PackedPrompts:
    """Pack prompts for a decoder: those share tokens that share rotary frequencies."""
    rope = decoder.config.rope
    return pack_prompts(prompts, [rotary_length(rope, len(ids)) for ids in prompts])


def plan_waves(
    decoder: Decoder[Array],
    packed: PackedPrompts,
    top_rows: Ints | None,
    top: int,
) -> Callable[[int], Wave[Array]]:
    """Return what tells a layer its wave: one for each window, and one for the top.

    Args:
        decoder: Whose arrays they are.
        packed: The stream.
        top_rows: The only rows that are computed of the top layer; None is all.
        top: The last layer that runs.
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
            max_keys=decoder.max_attention_keys,
            rows=top_rows if is_top else None,
        )
        return decoder.wave(rotary, attention)

    return lambda layer: wave(config.sliding_windows[layer], layer == top)


def next_token_waves(
    decoder: Decoder[Array], position: int
) -> Callable[[int], Wave[Array]]:
    """Return the same for one token that follows those in the caches."""
    config = decoder.config
    length = rotary_length(config.rope, position + 1)
    rotary = rotary_tables(
        config.rope, config.head_dim, np.array([position]), np.array([length])
    )

    @cache
    def wave(window: int | None) -> Wave[Array]:
        return decoder.wave(rotary, next_token_attention(position, window))

    return lambda layer: wave(config.sliding_windows[layer])
