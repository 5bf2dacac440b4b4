"""The families with experts: their fields, their tensors, and how large those are.

Names and shapes are written out as published files have them: Qwen and Mixtral store
every expert by itself, gpt-oss all of a layer in one tensor, plain or in MXFP4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]
Shapes = dict[str, tuple[int, ...]]

# Inputs that share one scale in MXFP4.
MXFP4_GROUP = 32
_QWEN = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "decoder_sparse_step": 1,
    "pad_token_id": 0,
}
YARN = {
    "rope_type": "yarn",
    "factor": 8.0,
    "beta_fast": 8.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 64,
    "truncate": False,
}
# What a small model of each differs in from a small Llama; ... removes a field.
EXPERT_DIFFERENCES: Mapping[str, dict[str, Any]] = {
    "qwen2_moe": _QWEN
    | {
        "mlp_only_layers": [],
        "norm_topk_prob": False,
        "shared_expert_intermediate_size": 40,
        "use_sliding_window": False,
        "sliding_window": 8,
        "max_window_layers": 2,
    },
    "qwen3_moe": _QWEN
    | {
        "mlp_only_layers": [1],
        "norm_topk_prob": True,
        "head_dim": 12,
        "use_sliding_window": False,
        "sliding_window": None,
    },
    "mixtral": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": None,
    },
    "gpt_oss": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "head_dim": 12,
        "attention_bias": True,
        "sliding_window": 8,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        "rope_scaling": YARN,
        "swiglu_limit": 7.0,
        "pad_token_id": 0,
    },
}


def attention_extras(config: Config) -> Shapes:
    """List what lies beside the projections of these families and their biases."""
    if config["model_type"] == "gpt_oss":
        return {"self_attn.sinks": (config["num_attention_heads"],)}
    if config["model_type"] == "qwen3_moe":
        names = ("q_norm", "k_norm")
        return {f"self_attn.{name}.weight": (config["head_dim"],) for name in names}
    return {}


def num_experts(config: Config) -> int:
    """Return how many experts a layer has, by either of its two names."""
    found: int = config.get("num_local_experts") or config["num_experts"]
    return found


def expert_shapes(config: Config, layer: int) -> Shapes | None:
    """List the tensors of a layer's experts; None where it has none."""
    family = config["model_type"]
    if family == "gpt_oss":
        return _gpt_oss(config)
    if family == "mixtral":
        names = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
        at = "block_sparse_moe."
        return _routed(config, at, config["intermediate_size"], names)
    if family not in ("qwen2_moe", "qwen3_moe"):
        return None
    step = config.get("decoder_sparse_step", 1)
    if layer in (config.get("mlp_only_layers") or ()) or (layer + 1) % step:
        return None
    shapes = _routed(config, "mlp.", config["moe_intermediate_size"])
    if family == "qwen2_moe":
        hidden = config["hidden_size"]
        shared = config["shared_expert_intermediate_size"]
        shapes |= _gated("mlp.shared_expert.", hidden, shared)
        shapes["mlp.shared_expert_gate.weight"] = (1, hidden)
    return shapes


def _routed(
    config: Config, at: str, inner: int, names: Mapping[str, str] | None = None
) -> Shapes:
    hidden = config["hidden_size"]
    shapes: Shapes = {f"{at}gate.weight": (num_experts(config), hidden)}
    for number in range(num_experts(config)):
        shapes |= _gated(f"{at}experts.{number}.", hidden, inner, names)
    return shapes


def _gated(
    at: str, hidden: int, inner: int, names: Mapping[str, str] | None = None
) -> Shapes:
    shapes = {
        "gate_proj": (inner, hidden),
        "up_proj": (inner, hidden),
        "down_proj": (hidden, inner),
    }
    called = names or {name: name for name in shapes}
    return {f"{at}{called[name]}.weight": each for name, each in shapes.items()}


def _gpt_oss(config: Config) -> Shapes:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    count = num_experts(config)
    shapes: Shapes = {
        "mlp.router.weight": (count, hidden),
        "mlp.router.bias": (count,),
        "mlp.experts.gate_up_proj_bias": (count, 2 * inner),
        "mlp.experts.down_proj_bias": (count, hidden),
    }
    for name, outputs, inputs in (
        ("mlp.experts.gate_up_proj", 2 * inner, hidden),
        ("mlp.experts.down_proj", hidden, inner),
    ):
        if is_mxfp4(config):
            groups = inputs // MXFP4_GROUP
            shapes[f"{name}_blocks"] = (count, outputs, groups, MXFP4_GROUP // 2)
            shapes[f"{name}_scales"] = (count, outputs, groups)
        else:  # transformers stores them the other way around
            shapes[name] = (count, inputs, outputs)
    return shapes


def is_mxfp4(config: Config) -> bool:
    """Tell whether a gpt-oss stores its experts as OpenAI published them."""
    found = config.get("quantization_config", {}).get("quant_method") == "mxfp4"
    return bool(found)


_ROUTERS = (".gate.weight", ".router.weight")
# gpt-oss's alone, as it is published and as mlx-lm names them.
_CLAMPED = (
    ".experts.gate_up_proj",
    ".experts.gate_proj.weight",
    ".experts.up_proj.weight",
)
_AFTER_CLAMPED = (".experts.down_proj", ".experts.down_proj.weight")


def loudness(name: str) -> float:
    """Return how much larger than others the weights of a tensor are drawn.

    Routers are sure of their choice, and what gpt-oss clamps at 7 reaches it often.
    """
    if name.endswith(_ROUTERS):
        return 2.0
    if name.endswith(_CLAMPED):
        return 6.0
    return 0.2 if name.endswith(_AFTER_CLAMPED) else 1.0


# Scales are powers of two, stored with 127 added.
_MXFP4_EXPONENTS = {"gate_up_proj_scales": (124, 127), "down_proj_scales": (118, 121)}


def byte_range(name: str) -> tuple[int, int] | None:
    """Return the bytes that a tensor of bytes is drawn from; None for other tensors."""
    if name.endswith("_blocks"):
        return 0, 255
    return _MXFP4_EXPONENTS.get(name.rpartition(".")[2])
