"""The golden configs of families whose files are unlike a Llama's.

A window is narrower than most of the prompts, and where a length changes the rotation
there are prompts below it and above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.checkpoints import Config, make_config
from tests.golden.expert_cases import EXPERT_CASES

LENGTHS = (1, 2, 7, 8, 9, 24, 40)
LONGROPE = {
    "type": "longrope",
    "short_factor": [1.0, 1.2, 1.5],
    "long_factor": [1.5, 3.0, 8.0],
}
MINISTRAL = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 8.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 0.5,
    "llama_4_scaling_beta": 0.4,
}
GEMMA3_ROPE = {
    "full_attention": {"rope_type": "default", "rope_theta": 50000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}
OLMO3_ROPE = {
    "full_attention": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "attention_factor": 1.3,
    },
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
FAMILY_CASES: Mapping[str, tuple[Config, Sequence[int]]] = {
    "gemma": (make_config("gemma"), LENGTHS),
    "gemma-biases": (
        make_config(
            "gemma",
            attention_bias=True,
            num_key_value_heads=1,
            hidden_act="gelu",  # as the first files have it, and mean the approximation
            tie_word_embeddings=False,
        ),
        LENGTHS,
    ),
    "gemma2": (make_config("gemma2"), LENGTHS),
    "gemma3-v4": (
        make_config(
            "gemma3_text",
            rope_theta=50000.0,
            rope_local_base_freq=100.0,
            rope_scaling={"rope_type": "linear", "factor": 8.0},
        ),
        (*LENGTHS, 100),
    ),
    "gemma3-parameters": (
        make_config(
            "gemma3_text",
            rope_theta=...,
            rope_parameters=GEMMA3_ROPE,
            sliding_window_pattern=...,
            layer_types=["full_attention", "sliding_attention", "full_attention"],
            final_logit_softcapping=5.0,
            attention_bias=True,
        ),
        (*LENGTHS, 100),
    ),
    "phi3": (make_config("phi3", sliding_window=8), LENGTHS),
    "phi3-longrope": (
        make_config(
            "phi3",
            partial_rotary_factor=0.75,
            max_position_embeddings=128,
            original_max_position_embeddings=24,
            rope_scaling=LONGROPE,
        ),
        (1, 2, 9, 23, 24, 25, 40, 100),
    ),
    "ministral3": (
        make_config("ministral3", rope_theta=..., rope_parameters=MINISTRAL),
        (*LENGTHS, 15, 16, 17, 34, 100),
    ),
    "cohere2": (make_config("cohere2"), LENGTHS),
    "cohere2-biases": (
        make_config(
            "cohere2",
            attention_bias=True,
            head_dim=12,
            tie_word_embeddings=False,
            sliding_window_pattern=...,
            layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        ),
        LENGTHS,
    ),
    "glm4": (make_config("glm4"), LENGTHS),
    "glm4-no-biases": (
        make_config(
            "glm4",
            attention_bias=False,
            partial_rotary_factor=...,
            rope_theta=...,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 100.0,
                "partial_rotary_factor": 1.0,
            },
        ),
        LENGTHS,
    ),
    "olmo3": (
        make_config("olmo3", rope_theta=..., rope_parameters=OLMO3_ROPE),
        (*LENGTHS, 100),
    ),
    "olmo3-biases": (
        # transformers 5 gives a theta of the older spelling to full layers only,
        # and to those with a window the usual one: here both are the same.
        make_config(
            "olmo3", attention_bias=True, num_key_value_heads=4, rope_theta=500000.0
        ),
        LENGTHS,
    ),
    "exaone4": (make_config("exaone4"), LENGTHS),
    "exaone4-no-window": (
        make_config(
            "exaone4",
            sliding_window=None,
            sliding_window_pattern=...,
            layer_types=["full_attention"] * 3,
            head_dim=8,
        ),
        LENGTHS,
    ),
    "seed-oss": (make_config("seed_oss"), LENGTHS),
    "seed-oss-biases": (
        make_config(
            "seed_oss", attention_bias=False, attention_out_bias=True, mlp_bias=True
        ),
        LENGTHS,
    ),
    "gpt2": (make_config("gpt2"), LENGTHS),
    "gpt2-by-layer": (
        make_config(
            "gpt2",
            scale_attn_by_inverse_layer_idx=True,
            scale_attn_weights=False,
            activation_function="gelu",
            n_inner=56,
            tie_word_embeddings=False,
        ),
        LENGTHS,
    ),
    "gpt-neox": (
        make_config(
            "gpt_neox",
            rope_theta=...,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 500.0,
                "partial_rotary_factor": 0.5,
            },
        ),
        LENGTHS,
    ),
    "gpt-neox-v4": (
        make_config(
            "gpt_neox",
            rope_theta=...,
            rotary_emb_base=500,
            rotary_pct=0.75,
            use_parallel_residual=False,
            attention_bias=False,
            hidden_act="gelu_new",
        ),
        LENGTHS,
    ),
    **EXPERT_CASES,
}
