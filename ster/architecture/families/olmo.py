"""OLMo 2. Source: transformers 5.24, models/olmo2."""

from __future__ import annotations

from ster.architecture.blocks import BlockMaker, make_model
from ster.architecture.fields import Fields
from ster.architecture.sizes import read_rotary, read_sizes
from ster.architecture.spec import ModelSpec
from ster.architecture.windows import require_full_attention


def read_olmo2(fields: Fields) -> ModelSpec:
    """Read an OLMo 2: norms after each part, and over all heads of queries and keys."""
    sizes = read_sizes(fields, max_position_embeddings=2048, rms_norm_eps=1e-5)
    rotary = read_rotary(fields, sizes)
    require_full_attention(fields, sizes.num_hidden_layers)
    attention_bias = fields.flag("attention_bias", default=False)
    maker = BlockMaker(
        sizes=sizes,
        qkv_bias=attention_bias,
        o_bias=attention_bias,
        qk_norm="row",
        norms_after=True,
    )
    layers = [maker.block(i, rotary) for i in range(sizes.num_hidden_layers)]
    return make_model(fields, sizes, layers)
