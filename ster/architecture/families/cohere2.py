"""Command R7B and Command A (Cohere 2). Source: transformers 5.24, models/cohere2."""

from __future__ import annotations

from ster.architecture.blocks import BlockMaker, check_activation, make_model
from ster.architecture.fields import Fields
from ster.architecture.sizes import read_rotary, read_sizes
from ster.architecture.spec import ModelSpec
from ster.architecture.windows import listed_windows

WINDOW, PATTERN = 4096, 4
LOGIT_SCALE = 0.0625
# Both parts read the stream through the same LayerNorm.
NORMS = {"attention_norm": "input_layernorm", "feed_forward_norm": "input_layernorm"}


def read_cohere2(fields: Fields) -> ModelSpec:
    """Read a Cohere 2: parallel parts, and only layers with a window turn."""
    check_activation(fields)
    sizes = read_sizes(
        fields,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        eps_field="layer_norm_eps",
    )
    rotary = read_rotary(fields, sizes)
    pattern = fields.count("sliding_window_pattern", PATTERN)
    slides = [(layer + 1) % pattern != 0 for layer in range(sizes.num_hidden_layers)]
    windows = listed_windows(fields, slides, WINDOW)
    bias = fields.flag("attention_bias", default=False)
    maker = BlockMaker(
        sizes=sizes,
        qkv_bias=bias,
        o_bias=bias,
        norms=NORMS,
        centred=True,
        parallel=True,
        paired=True,
    )
    layers = [
        maker.block(i, None if window is None else rotary, window)
        for i, window in enumerate(windows)
    ]
    return make_model(
        fields,
        sizes,
        layers,
        tied=True,
        final_norm=maker.norm("norm"),
        logit_scale=fields.number("logit_scale", LOGIT_SCALE),
    )
