"""The families whose files are unlike a Llama's: their fields, and their tensors.

Names and shapes are written out as transformers stores them, so that what ster takes
them to be is held against something of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.expert_families import EXPERT_DIFFERENCES, attention_extras, expert_shapes

Config = Mapping[str, Any]
Shapes = dict[str, tuple[int, ...]]

GEMMAS = ("gemma", "gemma2", "gemma3_text")
_GELU = "gelu_pytorch_tanh"
_CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0}
_GEMMA = {
    "head_dim": 12,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
}
_LATER_GEMMA = _GEMMA | {
    "hidden_act": ...,
    "hidden_activation": _GELU,
    "query_pre_attn_scalar": 20,
    "sliding_window": 8,
}
# The older words of config.json, in GPT-2's.
GPT2_WORDS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "intermediate_size": "n_inner",
}
# What a small model of each differs in from a small Llama; ... removes a field.
DIFFERENCES: Mapping[str, dict[str, Any]] = {
    "gemma": _GEMMA | {"hidden_act": _GELU},
    "gemma2": _LATER_GEMMA | _CAPS,
    "gemma3_text": _LATER_GEMMA | {"sliding_window_pattern": 3},
    "phi3": {"pad_token_id": 0},
    "ministral3": {"head_dim": 12},
    "cohere2": {
        "rms_norm_eps": ...,
        "layer_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "sliding_window": 8,
        "sliding_window_pattern": 3,
        "logit_scale": 0.4,
        "pad_token_id": 0,
    },
    "glm4": {"head_dim": 12, "partial_rotary_factor": 0.5, "pad_token_id": 0},
    "olmo3": {
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "pad_token_id": 0,
    },
    "exaone4": {"head_dim": 12, "sliding_window": 8, "sliding_window_pattern": 3},
    "seed_oss": {"head_dim": 12, "pad_token_id": 0},
    "gpt2": {
        **dict.fromkeys(GPT2_WORDS, ...),
        **dict.fromkeys(("num_key_value_heads", "rope_theta", "rms_norm_eps"), ...),
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 512,
        "layer_norm_epsilon": 1e-5,
        "hidden_act": ...,
        "activation_function": "gelu_new",
        "tie_word_embeddings": True,
    },
    "gpt_neox": {
        "num_key_value_heads": ...,
        "rms_norm_eps": ...,
        "layer_norm_eps": 1e-5,
        "hidden_act": "gelu",
    },
    **EXPERT_DIFFERENCES,
}


def field_of(config: Config, name: str) -> Any:
    """Read a field that every config has, by the family's own word for it."""
    is_gpt2 = config["model_type"] == "gpt2"
    return config[GPT2_WORDS[name] if is_gpt2 else name]


def family_shapes(config: Config) -> Shapes:
    """List every tensor in the files of one of these families."""
    return _SHAPES.get(config["model_type"], _llama_like)(config)


def _llama_like(config: Config) -> Shapes:
    """List those of families with a Llama's modules, some of them fused."""
    hidden = config["hidden_size"]
    shapes = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        experts = expert_shapes(config, layer)
        parts = _norms(config) | _attention(config)
        parts |= _gated(config) if experts is None else experts
        shapes |= {f"model.layers.{layer}.{name}": each for name, each in parts.items()}
    return shapes


_BEFORE = ("input_layernorm", "post_attention_layernorm")
_AFTER = ("post_attention_layernorm", "post_feedforward_layernorm")
_AROUND = (*_BEFORE, "pre_feedforward_layernorm", "post_feedforward_layernorm")
_NORMS: Mapping[str, tuple[str, ...]] = {
    "gemma2": _AROUND,
    "gemma3_text": _AROUND,
    "cohere2": ("input_layernorm",),
    "glm4": (*_BEFORE, "post_self_attn_layernorm", "post_mlp_layernorm"),
    "olmo3": _AFTER,
    "exaone4": _AFTER,
}


def _norms(config: Config) -> Shapes:
    names = _NORMS.get(config["model_type"], _BEFORE)
    return {f"{name}.weight": (config["hidden_size"],) for name in names}


def _attention(config: Config) -> Shapes:
    family, hidden = config["model_type"], config["hidden_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    queries, keys = heads * head_dim, kv_heads * head_dim
    shapes: Shapes = {"self_attn.o_proj.weight": (hidden, queries)}
    widths = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
    if family == "phi3":
        widths = {"qkv_proj": queries + 2 * keys}
    # These two have biases unless the file says otherwise, and o_proj has its own flag.
    own = family in ("glm4", "seed_oss")
    bias = config.get("attention_bias", own)
    if family == "qwen2_moe":
        bias = config.get("qkv_bias", True)
    for name, outputs in widths.items():
        shapes[f"self_attn.{name}.weight"] = (outputs, hidden)
        if bias:
            shapes[f"self_attn.{name}.bias"] = (outputs,)
    out_bias = bias and family != "qwen2_moe"
    if config.get("attention_out_bias", False) if own else out_bias:
        shapes["self_attn.o_proj.bias"] = (hidden,)
    if family in ("gemma3_text", "exaone4", "olmo3"):
        whole = family == "olmo3"
        shapes["self_attn.q_norm.weight"] = (queries if whole else head_dim,)
        shapes["self_attn.k_norm.weight"] = (keys if whole else head_dim,)
    return shapes | attention_extras(config)


def _gated(config: Config) -> Shapes:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    widths = {"gate_proj": inner, "up_proj": inner}
    if config["model_type"] in ("phi3", "glm4"):
        widths = {"gate_up_proj": 2 * inner}
    shapes: Shapes = {"mlp.down_proj.weight": (hidden, inner)}
    shapes |= {f"mlp.{name}.weight": (each, hidden) for name, each in widths.items()}
    if config.get("mlp_bias", False):
        shapes["mlp.down_proj.bias"] = (hidden,)
        shapes |= {f"mlp.{name}.bias": (each,) for name, each in widths.items()}
    return shapes


def _gpt2(config: Config) -> Shapes:
    """List a GPT-2's, whose matrices are stored as (inputs, outputs)."""
    hidden, vocab = config["n_embd"], config["vocab_size"]
    inner = config.get("n_inner") or 4 * hidden
    shapes = {
        "transformer.wte.weight": (vocab, hidden),
        "transformer.wpe.weight": (config["n_positions"], hidden),
        **_with_bias("transformer.ln_f", (hidden,)),
    }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    for layer in range(config["n_layer"]):
        at = f"transformer.h.{layer}."
        for name in ("ln_1", "ln_2"):
            shapes |= _with_bias(at + name, (hidden,))
        for name, inputs, outputs in (
            ("attn.c_attn", hidden, 3 * hidden),
            ("attn.c_proj", hidden, hidden),
            ("mlp.c_fc", hidden, inner),
            ("mlp.c_proj", inner, hidden),
        ):
            shapes |= _with_bias(at + name, (inputs, outputs), outputs)
    return shapes


def _gpt_neox(config: Config) -> Shapes:
    """List a GPT-NeoX's: query, key and value of a head lie beside each other."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    inner = config["intermediate_size"]
    shapes = {
        "gpt_neox.embed_in.weight": (vocab, hidden),
        **_with_bias("gpt_neox.final_layer_norm", (hidden,)),
    }
    if not config["tie_word_embeddings"]:
        shapes["embed_out.weight"] = (vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"gpt_neox.layers.{layer}."
        for name in _BEFORE:
            shapes |= _with_bias(at + name, (hidden,))
        for name, outputs, inputs in (
            ("attention.query_key_value", 3 * hidden, hidden),
            ("attention.dense", hidden, hidden),
            ("mlp.dense_h_to_4h", inner, hidden),
            ("mlp.dense_4h_to_h", hidden, inner),
        ):
            shapes |= _with_bias(at + name, (outputs, inputs))
            if "attention" in name and not config.get("attention_bias", True):
                del shapes[f"{at}{name}.bias"]
    return shapes


def _with_bias(name: str, shape: tuple[int, ...], outputs: int | None = None) -> Shapes:
    return {f"{name}.weight": shape, f"{name}.bias": (outputs or shape[0],)}


_SHAPES = {"gpt2": _gpt2, "gpt_neox": _gpt_neox}
