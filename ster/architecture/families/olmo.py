"""OLMo 2 and 3. Source: transformers 5.24, models/olmo2 and olmo3."""

from __future__ import annotations

from ster.architecture.blocks import (
    NORMS_AFTER,
    BlockMaker,
    check_activation,
    make_model,
)
from ster.architecture.fields import Fields
from ster.architecture.sizes import read_rotary, read_rotary_by_kind, read_sizes
from ster.architecture.spec import ModelSpec
from ster.architecture.windows import (
    FULL,
    SLIDING,
    listed_windows,
    require_full_attention,
)

WINDOW, PATTERN = 4096, 4
OLMO3_THETA = 500_000.0
THETAS = {FULL: ("rope_theta", OLMO3_THETA), SLIDING: ("rope_theta", OLMO3_THETA)}


def read_olmo2(fields: Fields) -> ModelSpec:
    """Read an OLMo 2: norms after each part, and over all heads of queries and keys."""
    maker = _maker(fields)
    sizes = maker.sizes
    rotary = read_rotary(fields, sizes)
    require_full_attention(fields, sizes.num_hidden_layers)
    layers = [maker.block(i, rotary) for i in range(sizes.num_hidden_layers)]
    return make_model(fields, sizes, layers)


def read_olmo3(fields: Fields) -> ModelSpec:
    """Read an OLMo 3: an OLMo 2 with a window in three layers of four."""
    maker = _maker(fields)
    sizes = maker.sizes
    rotaries = read_rotary_by_kind(fields, sizes, THETAS)
    slides = [(layer + 1) % PATTERN != 0 for layer in range(sizes.num_hidden_layers)]
    windows = listed_windows(fields, slides, WINDOW)
    layers = [
        maker.block(i, rotaries[FULL if window is None else SLIDING], window)
        for i, window in enumerate(windows)
    ]
    return make_model(fields, sizes, layers)


def _maker(fields: Fields) -> BlockMaker:
    check_activation(fields)
    sizes = read_sizes(fields, max_position_embeddings=2048, rms_norm_eps=1e-5)
    bias = fields.flag("attention_bias", default=False)
    return BlockMaker(
        sizes=sizes, qkv_bias=bias, o_bias=bias, qk_norm="row", norms=NORMS_AFTER
    )
