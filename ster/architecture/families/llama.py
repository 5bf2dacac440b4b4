"""Llama 1 to 3. Source: transformers 5.24, models/llama."""

from __future__ import annotations

from ster.architecture.blocks import BlockMaker, check_activation, make_model
from ster.architecture.fields import Fields
from ster.architecture.sizes import read_rotary, read_sizes
from ster.architecture.spec import ModelSpec
from ster.architecture.windows import require_full_attention


def read_llama(fields: Fields) -> ModelSpec:
    """Read a Llama; the first files name neither their length nor their eps."""
    check_activation(fields)
    sizes = read_sizes(fields, max_position_embeddings=2048, rms_norm_eps=1e-6)
    rotary = read_rotary(fields, sizes)
    require_full_attention(fields, sizes.num_hidden_layers)
    attention_bias = fields.flag("attention_bias", default=False)
    maker = BlockMaker(
        sizes=sizes,
        qkv_bias=attention_bias,
        o_bias=attention_bias,
        mlp_bias=fields.flag("mlp_bias", default=False),
    )
    layers = [maker.block(i, rotary) for i in range(sizes.num_hidden_layers)]
    return make_model(fields, sizes, layers)
