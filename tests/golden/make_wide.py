"""Make the golden files of the wide path; needs torch and transformers.

    python -m tests.golden.make_wide [family ...]

Each is a model of transformers in float64 whose weights come from a seed; README.md
beside this file says what a golden file holds.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from tests.checkpoints import random_ids, write_safetensors
from tests.golden.golden import fingerprint
from tests.golden.wide import FOLDER, SEED, VOCABULARY, deltas, draw_tensors

LENGTHS = (1, 7, 24, 40)
NEW_TOKENS = 6
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
MOE = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
}
LINEAR = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}
MLA = {
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "head_dim": 8,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 0.8,
    "mscale_all_dim": 0.5,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
GDN = {
    **LINEAR,
    "head_dim": 8,
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
}
DEEPSEEK_MOE = {
    **MOE,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
HYBRID = ["mamba", "attention", "mamba"]
# What transformers is given beside ``SMALL``. ``published`` are fields that published
# files have and transformers does not write; ``wrapper`` is the type of the model that
# a family is published inside of.
CASES: Mapping[str, dict[str, Any]] = {
    "afmoe": {
        **MOE,
        "head_dim": 8,
        "num_dense_layers": 1,
        "num_shared_experts": 1,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "sliding_window": 16,
    },
    "apertus": {
        "rope_parameters": LLAMA3,
        "published": {"mlp_bias": False, "post_norm": False, "qk_norm": True},
    },
    "cohere": {"logit_scale": 0.25, "use_qk_norm": True},
    "deepseek_v2": {
        **MLA,
        **DEEPSEEK_MOE,
        "topk_method": "greedy",
        "rope_parameters": YARN,
    },
    "deepseek_v3": {**MLA, **DEEPSEEK_MOE, "rope_parameters": YARN},
    "deepseek_v3-groups": {
        **MLA,
        **DEEPSEEK_MOE,
        "num_experts": 8,
        "num_experts_per_tok": 4,
        "num_local_experts": 8,
        "n_routed_experts": 8,
        "n_group": 4,
        "topk_group": 2,
        "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    },
    "dots1": {**DEEPSEEK_MOE, "head_dim": 8, "layer_types": ["full_attention"] * 3},
    "ernie4_5": {"head_dim": 8},
    "ernie4_5_moe": {
        **MOE,
        "moe_num_experts": 4,
        "moe_k": 2,
        "moe_num_shared_experts": 1,
        "moe_layer_start_index": 1,
        "head_dim": 8,
    },
    "exaone_moe": {
        **DEEPSEEK_MOE,
        "head_dim": 8,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
        "sliding_window": 16,
        "num_shared_experts": 1,
        "is_moe_layer": [False, True, True],
    },
    "falcon_h1": {
        "head_dim": 8,
        "mamba_d_ssm": 32,
        "mamba_n_heads": 4,
        "mamba_d_head": 8,
        "mamba_d_state": 8,
        "mamba_chunk_size": 16,
        "mamba_expand": 1,
        "attention_in_multiplier": 0.8,
        "attention_out_multiplier": 0.9,
        "embedding_multiplier": 5.5,
        "key_multiplier": 0.4,
        "lm_head_multiplier": 0.5,
        "mlp_multipliers": [0.9, 0.6],
        "ssm_in_multiplier": 1.25,
        "ssm_multipliers": [0.35, 0.25, 0.35, 0.5, 0.35],
        "ssm_out_multiplier": 0.25,
    },
    "falcon_mamba": {
        "state_size": 8,
        "conv_kernel": 4,
        "expand": 2,
        "time_step_rank": 4,
        "intermediate_size": 64,
    },
    "gemma4": {
        "of": "gemma4_text",
        "wrapper": "gemma4",
        "head_dim": 8,
        "global_head_dim": 16,
        "vocab_size_per_layer_input": VOCABULARY,
        "hidden_size_per_layer_input": 8,
        "num_kv_shared_layers": 1,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "sliding_window": 16,
    },
    "gemma4_text": {
        "head_dim": 8,
        "global_head_dim": 16,
        "vocab_size_per_layer_input": VOCABULARY,
        "hidden_size_per_layer_input": 8,
        "num_kv_shared_layers": 0,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "sliding_window": 16,
    },
    "glm": {"head_dim": 8},
    "glm4_moe": {**DEEPSEEK_MOE, "head_dim": 8, "use_qk_norm": True},
    "glm4_moe_lite": {**MLA, **DEEPSEEK_MOE},
    "gpt_bigcode": {
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 512,
        "n_inner": 48,
        "multi_query": True,
    },
    "gptj": {
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "rotary_dim": 4,
        "n_positions": 512,
    },
    "granitemoe": {
        **MOE,
        "embedding_multiplier": 2.0,
        "residual_multiplier": 0.5,
        "logits_scaling": 2.0,
        "attention_multiplier": 0.2,
    },
    "granitemoehybrid": {
        **MOE,
        "shared_intermediate_size": 24,
        "layer_types": HYBRID,
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_state": 8,
        "mamba_expand": 2,
        "mamba_n_groups": 1,
        "position_embedding_type": "nope",
        "embedding_multiplier": 2.0,
        "residual_multiplier": 0.5,
        "logits_scaling": 2.0,
        "attention_multiplier": 0.2,
        "published": {"layer_types": HYBRID},
    },
    "helium": {"head_dim": 8},
    "hunyuan_v1_dense": {"head_dim": 8},
    "internlm3": {"head_dim": 8},
    "jamba": {
        **MOE,
        "num_experts": 4,
        "attn_layer_offset": 1,
        "attn_layer_period": 2,
        "expert_layer_offset": 1,
        "expert_layer_period": 2,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
        "use_mamba_kernels": False,
    },
    "laguna": {**MOE, "head_dim": 8},
    "lfm2": {
        "layer_types": ["conv", "full_attention", "conv"],
        "intermediate_size": 48,
        "block_auto_adjust_ff_dim": False,
        "published": {
            "block_dim": 32,
            "block_ff_dim": 48,
            "block_multiple_of": 8,
            "block_ffn_dim_multiplier": 1.0,
            "block_auto_adjust_ff_dim": False,
        },
    },
    "lfm2_moe": {
        **MOE,
        "layer_types": ["conv", "full_attention", "conv"],
        "num_dense_layers": 1,
    },
    "mamba": {"state_size": 8, "conv_kernel": 4, "expand": 2, "time_step_rank": 4},
    "mamba2": {
        "num_heads": 8,
        "head_dim": 8,
        "state_size": 8,
        "n_groups": 1,
        "expand": 2,
        "chunk_size": 16,
        "intermediate_size": 64,
    },
    "mellum": {**MOE, "head_dim": 8, "published": {"num_experts": 4}},
    "minimax_m2": {
        **MOE,
        "head_dim": 8,
        "published": {"rotary_dim": 8, "shared_intermediate_size": 0},
    },
    "nemotron": {"hidden_act": "relu2"},
    "nemotron_h": {
        "layers_block_type": ["mamba", "attention", "mlp"],
        "mamba_num_heads": 4,
        "mamba_head_dim": 8,
        "ssm_state_size": 8,
        "n_groups": 1,
        "head_dim": 8,
        "mlp_hidden_act": "relu2",
    },
    "olmoe": {**MOE, "norm_topk_prob": False, "tie_word_embeddings": False},
    "phi": {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 5000.0,
            "partial_rotary_factor": 0.5,
        }
    },
    "qwen3_5": {**GDN, "of": "qwen3_5_text", "wrapper": "qwen3_5"},
    "qwen3_5_moe": {
        **GDN,
        **MOE,
        "of": "qwen3_5_moe_text",
        "wrapper": "qwen3_5_moe",
        "fused": True,
        "shared_expert_intermediate_size": 24,
    },
    "qwen3_next": {**GDN, **MOE, "shared_expert_intermediate_size": 24},
    "recurrent_gemma": {
        "lru_width": 32,
        "attention_window_size": 16,
        "head_dim": 8,
        "num_key_value_heads": 1,
        "block_types": ["recurrent", "recurrent", "attention"],
    },
    "seed_oss": {"head_dim": 8, "attention_bias": True, "attention_out_bias": False},
    "stablelm": {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 5000.0,
            "partial_rotary_factor": 0.5,
        }
    },
    "stablelm-parallel": {
        "use_parallel_residual": True,
        "use_qkv_bias": True,
        "qk_layernorm": True,
    },
    "starcoder2": {"sliding_window": None, "tie_word_embeddings": True},
}


def main() -> None:
    for name in sys.argv[1:] or CASES:
        document = make(name.split("-")[0], CASES[name])
        path = FOLDER / f"{name}.json"
        path.write_text(json.dumps(document, separators=(",", ":")) + "\n")
        print(path.name, path.stat().st_size, flush=True)


def make(family: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Draw a model's weights and record what it computes."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    given = {**SMALL, **changes}
    published, wrapper = given.pop("published", {}), given.pop("wrapper", None)
    fused = given.pop("fused", False)
    made = transformers.AutoConfig.for_model(given.pop("of", family), **given)
    with tempfile.TemporaryDirectory() as folder:
        # Saved once for the names, the shapes and the spelling that its files have.
        transformers.AutoModelForCausalLM.from_config(
            made, dtype=torch.float32
        ).save_pretrained(folder)
        file, config_file = (
            Path(folder, "model.safetensors"),
            Path(folder, "config.json"),
        )
        with safe_open(file, "numpy") as stored:
            shapes = {n: stored.get_slice(n).get_shape() for n in sorted(stored.keys())}
        tensors = draw_tensors(shapes, SEED)
        write_safetensors(file, tensors, "f32")
        config = json.loads(config_file.read_text()) | published
        config_file.write_text(json.dumps(config))
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.float64,
            attn_implementation="eager",
            experts_implementation="eager",
        ).eval()
        # transformers keeps some parameters, such as a router's, in float32.
        model = model.double()
        prompts = [random_ids(n, seed=n, vocab_size=VOCABULARY) for n in LENGTHS]
        steering = deltas(len(find_layers(model)), made.hidden_size)
        if wrapper is not None:
            config = {"model_type": wrapper, "text_config": config}
        return {
            "config": config,
            "seed": SEED,
            "fused": fused,
            "prefix": "model." if wrapper is None else "model.language_model.",
            "shapes": shapes,
            "fingerprint": fingerprint(tensors),
            "records": [record(model, prompt, {}) for prompt in prompts],
            "steered": record(model, prompts[-2], steering),
        }


def find_layers(model: Any) -> Any:
    torch: Any = importlib.import_module("torch")
    return next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList))


def record(
    model: Any, prompt: Sequence[int], steering: Mapping[int, Any]
) -> dict[str, Any]:
    """Record the last token's rows, the score, and what the model would write."""
    rows, logits = run(model, prompt, steering)
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    following = list(prompt)
    for _ in range(NEW_TOKENS):
        following.append(int(run(model, following, steering)[1][-1].argmax()))
    chosen = log_probabilities[np.arange(len(prompt) - 1), list(prompt[1:])]
    return {
        "token_ids": list(prompt),
        "residuals": [shortest(row) for row in rows],
        "score": float(chosen.sum()),
        "next": following[len(prompt) :],
    }


def run(
    model: Any, prompt: Sequence[int], steering: Mapping[int, Any]
) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    torch: Any = importlib.import_module("torch")
    rows: list[NDArray[np.float64]] = []

    def keep(module: Any, inputs: Any, output: Any) -> Any:
        hidden = output[0] if isinstance(output, tuple) else output
        layer = len(rows)
        rows.append(hidden[0, -1].numpy().copy())
        if layer in steering:
            hidden = hidden + torch.tensor(steering[layer], dtype=hidden.dtype)
            return (hidden, *output[1:]) if isinstance(output, tuple) else hidden
        return None

    handles = [each.register_forward_hook(keep) for each in find_layers(model)]
    with torch.no_grad():
        output = model(input_ids=torch.tensor([list(prompt)]), use_cache=False)
    for handle in handles:
        handle.remove()
    return rows, output.logits[0].numpy()


def shortest(row: NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.9g}") for value in row]


if __name__ == "__main__":
    main()
