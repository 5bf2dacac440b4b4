"""The golden configs of families with experts.

Few tokens, and a seed that is searched for: see ``routing.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.checkpoints import Config, make_config
from tests.expert_families import YARN

LENGTHS = (1, 9, 24)
GPT_OSS_ROPE = YARN | {"rope_theta": 10000.0}


def default_rope(theta: float) -> dict[str, object]:
    return {"rope_type": "default", "rope_theta": theta}


EXPERT_CASES: Mapping[str, tuple[Config, Sequence[int]]] = {
    "qwen3-moe": (make_config("qwen3_moe"), LENGTHS),
    "qwen3-moe-v5": (
        make_config(
            "qwen3_moe",
            num_experts=...,
            num_local_experts=4,
            rope_theta=...,
            rope_parameters=default_rope(500.0),
            norm_topk_prob=False,
            num_hidden_layers=4,
            decoder_sparse_step=2,
            mlp_only_layers=[],
            attention_bias=True,
            tie_word_embeddings=True,
        ),
        LENGTHS,
    ),
    "qwen3-moe-window": (
        make_config(
            "qwen3_moe",
            mlp_only_layers=[0],
            use_sliding_window=True,
            sliding_window=8,
            max_window_layers=2,  # written, and read by nobody
        ),
        LENGTHS,
    ),
    "qwen2-moe": (make_config("qwen2_moe"), LENGTHS),
    "qwen2-moe-window": (
        make_config(
            "qwen2_moe",
            use_sliding_window=True,
            norm_topk_prob=True,
            num_hidden_layers=4,
            decoder_sparse_step=2,
        ),
        LENGTHS,
    ),
    "qwen2-moe-layer-types": (
        make_config(
            "qwen2_moe",
            rope_theta=...,
            rope_parameters=default_rope(500.0),
            use_sliding_window=True,
            layer_types=["full_attention", "full_attention", "sliding_attention"],
            mlp_only_layers=[0],
            qkv_bias=False,
            tie_word_embeddings=True,
        ),
        LENGTHS,
    ),
    "mixtral": (make_config("mixtral", rope_theta=...), LENGTHS),
    "mixtral-window": (
        make_config(
            "mixtral",
            rope_theta=...,
            rope_parameters=default_rope(500.0),
            sliding_window=8,
            head_dim=12,
            num_local_experts=5,
            num_experts_per_tok=3,
        ),
        LENGTHS,
    ),
    "gpt-oss": (make_config("gpt_oss"), LENGTHS),
    "gpt-oss-v5": (
        make_config(
            "gpt_oss",
            rope_theta=...,
            rope_scaling=...,
            rope_parameters=GPT_OSS_ROPE,
            attention_bias=False,
            num_key_value_heads=1,
            layer_types=...,  # a window in every other layer, the first to begin with
            swiglu_limit=4.0,
            swiglu_alpha=1.2,
        ),
        LENGTHS,
    ),
    "gpt-oss-mxfp4": (
        make_config(
            "gpt_oss",
            intermediate_size=64,
            quantization_config={
                "modules_to_not_convert": [
                    "model.layers.*.self_attn",
                    "model.layers.*.mlp.router",
                    "model.embed_tokens",
                    "lm_head",
                ],
                "quant_method": "mxfp4",
            },
            # As published files have them, and said twice.
            experts_per_token=2,
            initial_context_length=64,
        ),
        LENGTHS,
    ),
}
