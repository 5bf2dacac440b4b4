"""What each layer needs to know of a packed stream: its angles, who attends to whom.

Layers with the same rotation share its tables; layers with the same window and the same
wanted rows share their attention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import numpy as np

from ster.architecture.parts import Rotary
from ster.architecture.spec import ModelSpec
from ster.decoder.contract import Decoder, LayerInputs
from ster.stream.attention import (
    Attention,
    next_token_attention,
    plan_attention,
)
from ster.stream.packing import Ints, PackedPrompts, Tokens, pack_prompts
from ster.stream.rotary import RotaryTables, rotary_tables

Array = TypeVar("Array")
InputsOf = Callable[[int], LayerInputs[Array]]


def pack_tokens(spec: ModelSpec, prompts: Sequence[Tokens]) -> PackedPrompts:
    """Pack prompts; only those with the same rotary frequencies share tokens."""
    return pack_prompts(prompts, [spec.rotary_length(len(ids)) for ids in prompts])


def stream_inputs(
    decoder: Decoder[Array], packed: PackedPrompts, *, top: int, top_rows: Ints | None
) -> InputsOf[Array]:
    """Return a function that gives each layer its inputs in a packed stream.

    Args:
        decoder: Makes its own arrays of them.
        packed: The stream.
        top: The last layer that runs.
        top_rows: The rows that are wanted of the last layer; None is all.
    """

    def attend(window: int | None, is_top: bool) -> Attention[Ints]:
        return plan_attention(
            packed,
            window=window,
            max_pairs=decoder.max_attention_pairs,
            max_keys=decoder.max_attention_keys,
            rows=top_rows if is_top else None,
        )

    positions, lengths = packed.position_ids, packed.rotary_lengths
    return _inputs_of(decoder, positions, lengths, attend, top)


def next_token_inputs(decoder: Decoder[Array], position: int) -> InputsOf[Array]:
    """Return the same for one token that follows those in the caches."""
    positions = np.array([position])
    lengths = np.array([decoder.spec.rotary_length(position + 1)])

    def attend(window: int | None, is_top: bool) -> Attention[Ints]:
        del is_top  # there is one row, and every layer's is wanted
        return next_token_attention(position, window)

    return _inputs_of(decoder, positions, lengths, attend, None)


def _inputs_of(
    decoder: Decoder[Array],
    positions: Ints,
    rotary_lengths: Ints,
    attend: Callable[[int | None, bool], Attention[Ints]],
    top: int | None,
) -> InputsOf[Array]:
    @cache
    def tables(rotary: Rotary) -> RotaryTables[Array]:
        return decoder.bring_rotary(rotary_tables(rotary, positions, rotary_lengths))

    @cache
    def attention(window: int | None, is_top: bool) -> Attention[Array]:
        return decoder.bring_attention(attend(window, is_top))

    def inputs(layer: int) -> LayerInputs[Array]:
        spec = decoder.spec.layers[layer].attention
        return LayerInputs(
            rotary=None if spec.rotary is None else tables(spec.rotary),
            attention=attention(spec.window, layer == top),
        )

    return inputs
