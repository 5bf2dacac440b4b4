"""Fields that mlx-lm's families take otherwise than transformers, found by trying each.

Every field of every checked family was changed and both programs run (mlx-lm 0.32.2,
transformers 5.24). What is here came out different: values that one of the two has
built in, and fields whose absence means something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INF = float("inf")
_SILU = ("silu", "swish")
_TANH_GELU = ("gelu_new", "gelu_pytorch_tanh")
# The activation of nearly every family; others name theirs below. lfm2's have none.
_NOT_SILU = ("apertus", "gptj", "lfm2", "lfm2_moe", "nemotron", "nemotron_h", "phi")
_GEMMA4: Mapping[str, tuple[object, ...]] = {"hidden_activation": _TANH_GELU}
# Values that mlx-lm, or transformers, has built in; any other is refused.
_BUILT_IN: Mapping[str, Mapping[str, tuple[object, ...]]] = {
    "afmoe": {"n_group": (1,), "score_func": ("sigmoid",)},
    "apertus": {"hidden_act": ("xielu",)},
    "deepseek_v3": {"rope_interleave": (True,)},
    "falcon_h1": {"time_step_limit": ([0, INF],)},
    "falcon_mamba": {"layer_norm_epsilon": (1e-5,)},
    "gemma4": _GEMMA4,
    "gemma4_text": _GEMMA4,
    # One of its norms has 1e-6 in transformers, whatever the field says.
    "glm4_moe_lite": {"rope_interleave": (True,), "rms_norm_eps": (1e-5, 1e-6)},
    "gptj": {"activation_function": _TANH_GELU},
    "granitemoehybrid": {"mamba_n_groups": (1,)},
    "mamba": {"layer_norm_epsilon": (1e-5,), "use_bcdt_rms": (False,)},
    "mamba2": {"layer_norm_epsilon": (1e-5,), "n_groups": (1,)},
    "nemotron": {"hidden_act": ("relu2",)},
    "nemotron_h": {"mlp_hidden_act": ("relu2",), "mamba_hidden_act": _SILU},
    "phi": {"hidden_act": _TANH_GELU},
}
# What transformers takes where a file is silent and mlx-lm takes something else.
_ABSENT: Mapping[str, Mapping[str, object]] = {
    "afmoe": {"mup_enabled": False, "route_scale": 1.0, "sliding_window": 1024},
    "cohere": {"rope_theta": 5e5},
    "deepseek_v3": {"routed_scaling_factor": 2.5, "n_group": 8, "topk_group": 4},
    "exaone_moe": {"rope_theta": 1e4},
    "falcon_h1": {
        "attention_in_multiplier": 1.0,
        "attention_out_multiplier": 1.0,
        "embedding_multiplier": 1.0,
        "key_multiplier": 1.0,
        "lm_head_multiplier": 1.0,
        "mamba_norm_before_gate": True,
        "mlp_multipliers": [1.0, 1.0],
        "rope_theta": 1e4,
        "ssm_in_multiplier": 1.0,
        "ssm_multipliers": [1.0] * 5,
        "ssm_out_multiplier": 1.0,
        "tie_word_embeddings": False,
    },
    "gemma4": {"final_logit_softcapping": None, "use_double_wide_mlp": False},
    "gemma4_text": {"final_logit_softcapping": None, "use_double_wide_mlp": False},
    "glm4_moe_lite": {"rope_theta": 1e4},
    "granitemoe": {"tie_word_embeddings": False},
    "granitemoehybrid": {
        "position_embedding_type": "nope",
        "tie_word_embeddings": False,
        "time_step_limit": [0.0, INF],
    },
    "olmoe": {"tie_word_embeddings": False},
    "qwen3_next": {"norm_topk_prob": True},
}
# Families that cannot do without a rotary scaling: transformers has one of its own.
NEEDS_SCALING = ("apertus", "laguna")
# The kinds of scaling that a family computes, where these are not all.
SCALINGS_OF: Mapping[str, tuple[str, ...]] = {
    "deepseek_v2": ("default", "yarn"),
    "lfm2": ("default",),
    "lfm2_moe": ("default",),
    "mellum": ("default", "yarn"),
}
# Modules whose product transformers multiplies by a field, and mlx-lm does not.
UNSCALED: Mapping[str, Mapping[str, str]] = {
    "falcon_h1": {"k_proj": "key_multiplier", "v_proj": "attention_in_multiplier"},
}
# mlx-lm leaves a lone expert's weight as it is where transformers makes it one.
_NOT_ALONE = frozenset(
    ["afmoe", "deepseek_v3", "dots1", "exaone_moe", "glm4_moe", "glm4_moe_lite"]
)


def built_in(family: str) -> Mapping[str, tuple[object, ...]]:
    """Say which fields may have no other values than these."""
    shared = {} if family in _NOT_SILU or family in _GEMMAS else {"hidden_act": _SILU}
    # Nothing but mlx-lm knows this one.
    turned: dict[str, tuple[object, ...]] = {"rope_traditional": (False,)}
    return {**turned, **shared, **_BUILT_IN.get(family, {})}


_GEMMAS = ("gemma4", "gemma4_text")


def fill_absent(values: dict[str, Any], family: str) -> None:
    """Say outright what transformers takes where the file is silent."""
    places = (values.get("rope_parameters"), values.get("rope_scaling"))
    has_theta = any(isinstance(p, dict) and "rope_theta" in p for p in places)
    for name, value in _ABSENT.get(family, {}).items():
        if name != "rope_theta" or not has_theta:
            values.setdefault(name, value)
    if family == "nemotron_h":
        # transformers bounds the step from below by another field.
        least = values.get("time_step_min", 0.001)
        values["time_step_limit"] = [least, INF]


def normalises_alone(values: Mapping[str, Any], family: str) -> bool:
    """Tell whether one expert alone would have another weight than in transformers."""
    normalises = values.get("norm_topk_prob", values.get("route_norm", True))
    alone = values.get("num_experts_per_tok") == 1
    return family in _NOT_ALONE and alone and normalises is not False
