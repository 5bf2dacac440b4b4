"""What each layer needs to know of a stream: its angles, who attends to whom.

Layers with the same rotation share its tables; layers with the same window and the same
wanted rows share their attention.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import numpy as np

from ster.architecture.parts import Rotary
from ster.decoder.contract import Decoder, LayerInputs
from ster.stream.attention import Attention, plan_attention
from ster.stream.packing import Ints, PackedPrompts
from ster.stream.rotary import RotaryTables, rotary_tables
from ster.stream.texts import Entering, NextTokens, Texts

Array = TypeVar("Array")
InputsOf = Callable[[int], LayerInputs[Array]]


def stream_inputs(
    decoder: Decoder[Array],
    packed: PackedPrompts,
    *,
    top: int,
    top_rows: Ints | None,
    entering: Entering[Ints] | None = None,
) -> InputsOf[Array]:
    """Return a function that gives each layer its inputs in a packed stream.

    Args:
        decoder: Makes its own arrays of them.
        packed: The stream.
        top: The last layer that runs.
        top_rows: The rows that are wanted of the last layer; None is all.
        entering: Where caches put its keys, if there are any.
    """

    @cache
    def attend(window: int | None, is_top: bool) -> Attention[Array]:
        attention = plan_attention(
            packed,
            window=window,
            max_pairs=decoder.max_attention_pairs,
            max_keys=decoder.max_attention_keys,
            rows=top_rows if is_top else None,
        )
        return decoder.bring_attention(attention)

    tables = _tables_of(decoder, packed.position_ids, packed.rotary_lengths)
    brought = None if entering is None else decoder.bring_entering(entering)

    def of_kind(layer: int, is_top: bool) -> LayerInputs[Array]:
        spec = decoder.spec.layers[layer].attention
        return LayerInputs(
            rotary=tables(spec.rotary),
            attention=attend(spec.window, is_top),
            entering=brought,
        )

    return _each_once(decoder, of_kind, top)


def following_inputs(decoder: Decoder[Array], texts: Texts) -> InputsOf[Array]:
    """Return the same for the last tokens of texts whose others are in the caches."""
    positions = texts.positions
    lengths = [decoder.spec.rotary_length(int(each) + 1) for each in positions]
    tables = _tables_of(decoder, positions, np.array(lengths, np.int64))

    @cache
    def attend(window: int | None) -> NextTokens[Array]:
        return decoder.bring_following(texts.next_tokens(window))

    def of_kind(layer: int, is_top: bool) -> LayerInputs[Array]:
        del is_top  # every row is wanted of each
        spec = decoder.spec.layers[layer].attention
        return LayerInputs(rotary=tables(spec.rotary), attention=attend(spec.window))

    return _each_once(decoder, of_kind, None)


def _each_once(
    decoder: Decoder[Array],
    of_kind: Callable[[int, bool], LayerInputs[Array]],
    top: int | None,
) -> InputsOf[Array]:
    """Make the inputs of each kind of attention once, and those of the top layer."""
    made: dict[tuple[int, bool], LayerInputs[Array]] = {}
    kinds = decoder.spec.attention_kinds

    def inputs(layer: int) -> LayerInputs[Array]:
        key = kinds[layer], layer == top
        if key not in made:
            made[key] = of_kind(layer, layer == top)
        return made[key]

    return inputs


def _tables_of(
    decoder: Decoder[Array], positions: Ints, rotary_lengths: Ints
) -> Callable[[Rotary | None], RotaryTables[Array] | None]:
    @cache
    def tables(rotary: Rotary | None) -> RotaryTables[Array] | None:
        if rotary is None:
            return None
        return decoder.bring_rotary(rotary_tables(rotary, positions, rotary_lengths))

    return tables
