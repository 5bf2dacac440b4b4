"""Seed-OSS. Source: transformers 5.24, models/seed_oss."""

from __future__ import annotations

from ster.architecture.blocks import BlockMaker, check_activation, make_model
from ster.architecture.fields import Fields
from ster.architecture.sizes import read_rotary, read_sizes
from ster.architecture.spec import ModelSpec
from ster.architecture.windows import require_full_attention


def read_seed_oss(fields: Fields) -> ModelSpec:
    """Read a Seed-OSS: a Llama with a bias flag of its own for what attention adds."""
    check_activation(fields)
    sizes = read_sizes(
        fields, head_dim=128, max_position_embeddings=524_288, rms_norm_eps=1e-6
    )
    rotary = read_rotary(fields, sizes)
    require_full_attention(fields, sizes.num_hidden_layers)
    maker = BlockMaker(
        sizes=sizes,
        qkv_bias=fields.flag("attention_bias", default=True),
        o_bias=fields.flag("attention_out_bias", default=False),
        mlp_bias=fields.flag("mlp_bias", default=False),
    )
    layers = [maker.block(i, rotary) for i in range(sizes.num_hidden_layers)]
    return make_model(fields, sizes, layers)
