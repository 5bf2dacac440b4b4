"""Mistral and Ministral 3. Source: transformers 5.24, models/mistral and ministral3."""

from __future__ import annotations

from ster.architecture.blocks import BlockMaker, check_activation, make_model
from ster.architecture.fields import Fields
from ster.architecture.sizes import read_rotary, read_sizes
from ster.architecture.spec import ModelSpec
from ster.architecture.windows import FULL, SLIDING, no_window, read_layer_types

# MistralConfig.sliding_window where the file has no such field.
WINDOW = 4096
MINISTRAL3_THETA = 1_000_000.0


def read_mistral(fields: Fields) -> ModelSpec:
    """Read a Mistral: no biases, and one window for all layers or for none."""
    check_activation(fields)
    sizes = read_sizes(fields, max_position_embeddings=131_072, rms_norm_eps=1e-6)
    rotary = read_rotary(fields, sizes)
    window = read_window(fields, sizes.num_hidden_layers, WINDOW)
    maker = BlockMaker(sizes=sizes)
    layers = [maker.block(i, rotary, window) for i in range(sizes.num_hidden_layers)]
    return make_model(fields, sizes, layers)


def read_ministral3(fields: Fields) -> ModelSpec:
    """Read a Ministral 3: queries grow with their position, past the first length."""
    check_activation(fields)
    sizes = read_sizes(
        fields, head_dim=128, max_position_embeddings=262_144, rms_norm_eps=1e-5
    )
    rotary = read_rotary(fields, sizes, MINISTRAL3_THETA)
    window = read_window(fields, sizes.num_hidden_layers, None)
    maker = BlockMaker(sizes=sizes)
    layers = [maker.block(i, rotary, window) for i in range(sizes.num_hidden_layers)]
    return make_model(fields, sizes, layers)


def read_window(fields: Fields, num_layers: int, usual: int | None) -> int | None:
    """Read the window of all layers or of none.

    Args:
        fields: The whole config.
        num_layers: How many there are.
        usual: The window where the file has no such field.

    Raises:
        ConfigError: Some layer is listed as another than the field makes it.
    """
    # An explicit null means no window, an absent field means the family's own.
    window: int | None = None
    if fields.values.get("sliding_window", usual) is not None:
        window = fields.count("sliding_window", usual)
    expected = FULL if window is None else SLIDING
    for declared in read_layer_types(fields, num_layers) or ():
        if declared == SLIDING and window is None:
            raise no_window(fields)
        if declared != expected:
            fields.refuse("layer_types", declared, f"{expected} in every layer")
    return window
