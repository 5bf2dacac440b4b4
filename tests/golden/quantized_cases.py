"""The golden configs of quantized checkpoints.

Two layers are enough: what is pinned is what packed bits are worth, under which names,
and which module is stored how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.checkpoints import Config, make_config

LENGTHS = (1, 9, 24)
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
EXPERTS = ("gate_proj", "up_proj", "down_proj")
AFFINE = [(bits, group) for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]
FP8 = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
}


def quantized(family: str, declared: Mapping[str, Any], **changes: Any) -> Config:
    """Return a config that says twice how it is quantized, as mlx-lm writes it."""
    small = {"hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 2}
    both = {"quantization": dict(declared), "quantization_config": dict(declared)}
    return make_config(family, **(small | both | changes))


def affine(bits: int, group_size: int) -> dict[str, Any]:
    return {"group_size": group_size, "bits": bits, "mode": "affine"}


def fp(mode: str) -> dict[str, Any]:
    group, bits = {"mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}[mode]
    return {"group_size": group, "bits": bits, "mode": mode}


def matrices(layers: int) -> list[str]:
    """Name the matrices of a Llama's layers."""
    parts = [f"self_attn.{name}" for name in ATTENTION]
    parts += [f"mlp.{name}" for name in EXPERTS]
    return [f"model.layers.{i}.{part}" for i in range(layers) for part in parts]


def each_format() -> dict[str, Any]:
    """Store every matrix of three layers in a format of its own, but for some."""
    own = dict(zip(matrices(3), (affine(*one) for one in AFFINE), strict=False))
    return affine(4, 64) | own


def eight_bits(layers: int, module: str) -> dict[str, Any]:
    """Store a router at 8 bits, as mlx-lm does: without a mode, which means affine."""
    entry = {"group_size": 64, "bits": 8}
    return {f"model.layers.{layer}.{module}": entry for layer in range(layers)}


def of_gpt_oss() -> dict[str, Any]:
    """Store experts in MXFP4 and all else at 8 bits, of which nothing says affine."""
    parts = (*(f"self_attn.{name}" for name in ATTENTION), "mlp.router")
    named = [f"model.layers.{layer}.{part}" for layer in range(2) for part in parts]
    entry = {"group_size": 64, "bits": 8}
    return fp("mxfp4") | dict.fromkeys([*named, "model.embed_tokens", "lm_head"], entry)


def of_some() -> dict[str, Any]:
    """Leave some as they are; where groups do not fit nothing has to say so."""
    plain = ("model.layers.0.self_attn.o_proj", "model.layers.1.mlp.gate_proj")
    return {"group_size": 64, "bits": 3} | dict.fromkeys(plain, False)


def of_modes() -> dict[str, Any]:
    """Mix the modes of floats, layer by layer and in the head."""
    modes = {name: fp("mxfp4") for name in matrices(1)}
    own = {"model.layers.0.mlp.up_proj": fp("mxfp8"), "lm_head": fp("mxfp8")}
    return fp("nvfp4") | modes | own


QUANTIZED_CASES: Mapping[str, tuple[Config, Sequence[int]]] = {
    "q-affine": (quantized("llama", each_format(), num_hidden_layers=3), LENGTHS),
    "q-tied-some": (
        quantized("llama", of_some(), intermediate_size=96, tie_word_embeddings=True),
        LENGTHS,
    ),
    "q-modes": (quantized("qwen3", of_modes(), head_dim=32), LENGTHS),
    "q-mxfp8-tied": (
        quantized("llama", fp("mxfp8"), hidden_size=64, tie_word_embeddings=True),
        LENGTHS,
    ),
    "q-phi3": (quantized("phi3", affine(4, 64)), LENGTHS),
    "q-gemma2": (quantized("gemma2", affine(5, 32), head_dim=32), LENGTHS),
    "q-qwen3-moe": (
        quantized(
            "qwen3_moe",
            affine(4, 32) | eight_bits(2, "mlp.gate"),
            hidden_size=64,
            moe_intermediate_size=32,
            head_dim=16,
            mlp_only_layers=[],
        ),
        LENGTHS,
    ),
    "q-qwen2-moe": (
        quantized(
            "qwen2_moe",
            affine(6, 32)
            | eight_bits(2, "mlp.gate")
            | eight_bits(2, "mlp.shared_expert_gate"),
            hidden_size=64,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=64,
            mlp_only_layers=[0],
        ),
        LENGTHS,
    ),
    "q-mixtral": (
        quantized(
            "mixtral",
            affine(3, 64) | eight_bits(2, "block_sparse_moe.gate"),
            hidden_size=64,
            intermediate_size=64,
            sliding_window=8,
        ),
        LENGTHS,
    ),
    "q-gpt-oss": (
        quantized(
            "gpt_oss",
            of_gpt_oss(),
            hidden_size=64,
            intermediate_size=32,
            head_dim=16,
            layer_types=["full_attention", "sliding_attention"],
        ),
        LENGTHS,
    ),
    "fp8-qwen3": (
        # Blocks at the edges are not whole.
        make_config(
            "qwen3",
            hidden_size=144,
            intermediate_size=136,
            num_hidden_layers=2,
            head_dim=40,
            quantization_config=FP8,
        ),
        LENGTHS,
    ),
    "fp8-qwen3-moe": (
        make_config(
            "qwen3_moe",
            hidden_size=136,
            num_hidden_layers=2,
            mlp_only_layers=[1],
            quantization_config=FP8
            | {
                "modules_to_not_convert": [
                    "lm_head",
                    *(f"model.layers.{layer}.mlp.gate" for layer in range(2)),
                ]
            },
        ),
        LENGTHS,
    ),
}
