"""Phi 3, 3.5 and 4. Source: transformers 5.24, models/phi3."""

from __future__ import annotations

from ster.architecture.blocks import BlockMaker, check_activation, make_model
from ster.architecture.fields import Fields
from ster.architecture.sizes import read_rotary, read_sizes
from ster.architecture.spec import ModelSpec
from ster.architecture.windows import FULL, SLIDING, no_window, read_layer_types


def read_phi3(fields: Fields) -> ModelSpec:
    """Read a Phi 3: fused projections, and perhaps only some channels turn."""
    check_activation(fields)
    sizes = read_sizes(fields, max_position_embeddings=4096, rms_norm_eps=1e-5)
    rotary = read_rotary(fields, sizes, partial=1.0)
    window = fields.count("sliding_window") if fields.has("sliding_window") else None
    expected = FULL if window is None else SLIDING
    for declared in read_layer_types(fields, sizes.num_hidden_layers) or ():
        if declared == SLIDING and window is None:
            raise no_window(fields)
        if declared != expected:
            fields.refuse("layer_types", declared, f"{expected} in every layer")
    maker = BlockMaker(sizes=sizes, fused_qkv=True, fused_gate_up=True)
    layers = [maker.block(i, rotary, window) for i in range(sizes.num_hidden_layers)]
    return make_model(fields, sizes, layers)
