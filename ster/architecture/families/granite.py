"""Granite 3, dense. Source: transformers 5.24, models/granite."""

from __future__ import annotations

from ster.architecture.blocks import BlockMaker, check_activation, make_model
from ster.architecture.fields import Fields
from ster.architecture.sizes import read_rotary, read_sizes
from ster.architecture.spec import ModelSpec
from ster.architecture.windows import require_full_attention


def read_granite(fields: Fields) -> ModelSpec:
    """Read a Granite: a Llama whose embedding, scores, sums and logits are scaled."""
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
        scale=fields.number("attention_multiplier", 1.0),
        residual_multiplier=fields.number("residual_multiplier", 1.0),
    )
    layers = [maker.block(i, rotary) for i in range(sizes.num_hidden_layers)]
    return make_model(
        fields,
        sizes,
        layers,
        embedding_scale=fields.number("embedding_multiplier", 1.0),
        logit_scale=1.0 / fields.number("logits_scaling", 1.0),
    )
