"""The configs whose numbers are golden; every one is a small random checkpoint."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from tests.checkpoints import Config, make_config, random_ids
from tests.families import field_of
from tests.golden.family_cases import FAMILY_CASES, LENGTHS
from tests.golden.quantized_cases import QUANTIZED_CASES

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN_PARAMETERS = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 256,
    # With theta, so that the blend begins and ends between two channels.
    "beta_fast": 8.0,
    "beta_slow": 1.0,
    "truncate": False,
    "attention_factor": 1.3,
}
CASES: Mapping[str, tuple[Config, Sequence[int]]] = {
    "qwen3": (make_config("qwen3", tie_word_embeddings=True), LENGTHS),
    "qwen3-bias-window": (
        make_config(
            "qwen3",
            attention_bias=True,
            use_sliding_window=True,
            sliding_window=8,
            max_window_layers=1,
        ),
        LENGTHS,
    ),
    "yarn": (
        make_config(
            head_dim=16,
            max_position_embeddings=128,
            rope_scaling={
                "type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        ),
        (*LENGTHS, 100),
    ),
    "yarn-parameters": (
        make_config(
            head_dim=16,
            max_position_embeddings=1024,
            rope_theta=...,
            rope_parameters=YARN_PARAMETERS,
        ),
        (*LENGTHS, 100),
    ),
    "linear": (
        make_config(rope_scaling={"rope_type": "linear", "factor": 4.0}),
        LENGTHS,
    ),
    "dynamic": (
        make_config(
            max_position_embeddings=16,
            rope_scaling={"rope_type": "dynamic", "factor": 2.0},
        ),
        (2, 15, 16, 17, 24, 40, 100),
    ),
    "llama3-parameters": (
        make_config(
            head_dim=16,
            max_position_embeddings=256,
            rope_theta=...,
            rope_parameters=LLAMA3,
        ),
        (*LENGTHS, 100),
    ),
    "qwen2-window": (
        make_config(
            "qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=1
        ),
        LENGTHS,
    ),
    "llama-biases": (make_config(attention_bias=True, mlp_bias=True), LENGTHS),
    "llama-long": (make_config(max_position_embeddings=1024), (300, 700)),
    "granite": (make_config("granite", tie_word_embeddings=True), LENGTHS),
    "granite-biases": (
        make_config("granite", attention_bias=True, mlp_bias=True, head_dim=12),
        LENGTHS,
    ),
    "smollm3": (
        make_config(
            "smollm3",
            no_rope_layer_interval=...,
            no_rope_layers=[1, 0, 1],
            rope_theta=...,  # its own default is 2,000,000
            tie_word_embeddings=...,  # and this is true
        ),
        (*LENGTHS, 100),
    ),
    "smollm3-biases": (
        make_config("smollm3", attention_bias=True, mlp_bias=True),
        LENGTHS,
    ),
    "olmo2": (make_config("olmo2", rope_theta=500000.0), (*LENGTHS, 100)),
    "olmo2-biases": (
        make_config(
            "olmo2",
            attention_bias=True,
            num_key_value_heads=...,
            tie_word_embeddings=True,
        ),
        LENGTHS,
    ),
    "mistral-head-dim": (
        make_config("mistral", head_dim=12, sliding_window=8),
        LENGTHS,
    ),
    **FAMILY_CASES,
    **QUANTIZED_CASES,
}


def prompts_of(lengths: Sequence[int]) -> list[list[int]]:
    """Draw prompts: every second one is a prefix of the longest, the others not."""
    return [random_ids(n, seed=n if i % 2 else 0) for i, n in enumerate(lengths)]


def steering_of(config: Config) -> dict[int, list[float]]:
    """Draw vectors for the first and the last layer, as large as the stream itself.

    Two decimals each, so that a file holds them exactly as far as f32 goes.
    """
    draw = random.Random("steering").random
    width = field_of(config, "hidden_size")
    return {
        layer: [round(4 * draw() - 2, 2) for _ in range(width)]
        for layer in (0, field_of(config, "num_hidden_layers") - 1)
    }
