"""Mixtral. Source: transformers 5.24, models/mixtral."""

from __future__ import annotations

from ster.architecture.blocks import BlockMaker, check_activation, make_model
from ster.architecture.experts import ExpertMaker, read_num_experts
from ster.architecture.families.mistral import read_window
from ster.architecture.fields import Fields
from ster.architecture.sizes import read_rotary, read_sizes
from ster.architecture.spec import ModelSpec

THETA = 1_000_000.0


def read_mixtral(fields: Fields) -> ModelSpec:
    """Read a Mixtral: a Mistral whose feed-forward parts are experts."""
    check_activation(fields)
    sizes = read_sizes(
        fields,
        num_key_value_heads=8,
        max_position_embeddings=131_072,
        rms_norm_eps=1e-5,
    )
    rotary = read_rotary(fields, sizes, THETA)
    window = read_window(fields, sizes.num_hidden_layers, None)
    maker = BlockMaker(sizes=sizes)
    experts = ExpertMaker(
        block=maker,
        num_experts=read_num_experts(fields, 8),
        num_chosen=fields.count("num_experts_per_tok", 2),
        normalized=True,
        intermediate_size=sizes.intermediate_size,
        router="block_sparse_moe.gate",
        within="block_sparse_moe.",
        names={"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"},
    ).make()
    layers = [
        maker.block(i, rotary, window, experts) for i in range(sizes.num_hidden_layers)
    ]
    return make_model(fields, sizes, layers)
