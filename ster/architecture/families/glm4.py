"""GLM-4 of 2025 (0414). Source: transformers 5.24, models/glm4."""

from __future__ import annotations

from ster.architecture.blocks import BlockMaker, check_activation, make_model
from ster.architecture.fields import Fields
from ster.architecture.sizes import read_rotary, read_sizes
from ster.architecture.spec import ModelSpec
from ster.architecture.windows import require_full_attention

NORMS = {
    "attention_norm": "input_layernorm",
    "attention_out_norm": "post_self_attn_layernorm",
    "feed_forward_norm": "post_attention_layernorm",
    "feed_forward_out_norm": "post_mlp_layernorm",
}


def read_glm4(fields: Fields) -> ModelSpec:
    """Read a GLM-4: norms around both parts, and half of each head turns, in pairs."""
    check_activation(fields)
    sizes = read_sizes(
        fields, head_dim=128, max_position_embeddings=131_072, rms_norm_eps=1.5625e-7
    )
    rotary = read_rotary(fields, sizes, partial=0.5)
    require_full_attention(fields, sizes.num_hidden_layers)
    maker = BlockMaker(
        sizes=sizes,
        qkv_bias=fields.flag("attention_bias", default=True),
        norms=NORMS,
        fused_gate_up=True,
        paired=True,
    )
    layers = [maker.block(i, rotary) for i in range(sizes.num_hidden_layers)]
    return make_model(fields, sizes, layers)
