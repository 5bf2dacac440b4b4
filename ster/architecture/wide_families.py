"""Families that run through mlx-lm: which were checked, how, and which are wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

INSTALL = (
    "mlx-lm, through which Ster runs other families, is not installed here: "
    "pip install 'ster-mlx[mlx-lm]'"
)
# What the numbers below were measured with.
VERSIONS = "mlx-lm 0.32.2 and transformers 5.24.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How a family was checked.

    Args:
        what: The family in words.
        largest_error: The largest difference from transformers in float64 that was
            seen at f32, in any layer, as a share of that layer's largest value.
    """

    what: str
    largest_error: float


CHECKED: Mapping[str, Check] = {
    "afmoe": Check(what="Trinity (Arcee), mixture of experts", largest_error=8.4e-07),
    "apertus": Check(what="Apertus", largest_error=7.4e-07),
    "cohere": Check(what="Command R", largest_error=9.0e-07),
    "deepseek_v2": Check(what="DeepSeek V2", largest_error=9.2e-07),
    "deepseek_v3": Check(what="DeepSeek V3", largest_error=9.9e-07),
    "dots1": Check(what="dots.llm1, mixture of experts", largest_error=6.4e-07),
    "ernie4_5": Check(what="ERNIE 4.5, dense", largest_error=5.8e-07),
    "exaone_moe": Check(what="EXAONE, mixture of experts", largest_error=8.9e-07),
    "falcon_h1": Check(
        what="Falcon H1, attention and state space side by side", largest_error=1.1e-06
    ),
    "falcon_mamba": Check(what="Falcon Mamba, state space", largest_error=3.9e-06),
    "gemma4": Check(what="Gemma 4, the text part", largest_error=4.6e-06),
    "gemma4_text": Check(what="Gemma 4, text only", largest_error=6.2e-06),
    "glm4_moe": Check(what="GLM 4.5, mixture of experts", largest_error=5.9e-07),
    "glm4_moe_lite": Check(
        what="GLM 4.7 Flash, mixture of experts", largest_error=8.5e-06
    ),
    "gptj": Check(what="GPT-J", largest_error=4.4e-07),
    "granitemoe": Check(what="Granite 3, mixture of experts", largest_error=2.5e-07),
    "granitemoehybrid": Check(
        what="Granite 4, attention and state space", largest_error=5.4e-07
    ),
    "helium": Check(what="Helium", largest_error=7.4e-07),
    "hunyuan_v1_dense": Check(what="Hunyuan, dense", largest_error=4.4e-07),
    "internlm3": Check(what="InternLM 3", largest_error=5.9e-07),
    "laguna": Check(what="Laguna, mixture of experts", largest_error=6.8e-07),
    "lfm2": Check(what="LFM 2, attention and convolutions", largest_error=4.8e-07),
    "lfm2_moe": Check(what="LFM 2, mixture of experts", largest_error=4.8e-07),
    "mamba": Check(what="Mamba, state space", largest_error=6.4e-07),
    "mamba2": Check(what="Mamba 2, state space", largest_error=6.6e-07),
    "mellum": Check(what="Mellum, mixture of experts", largest_error=6.2e-07),
    "minimax_m2": Check(what="MiniMax M2, mixture of experts", largest_error=4.0e-07),
    "nemotron": Check(what="Nemotron 4", largest_error=1.3e-06),
    "nemotron_h": Check(
        what="Nemotron H, attention and state space", largest_error=8.6e-07
    ),
    "olmoe": Check(what="OLMoE, mixture of experts", largest_error=5.2e-07),
    "phi": Check(what="Phi 1 to 2", largest_error=3.1e-07),
    "qwen3_5": Check(what="Qwen 3.5, the text part", largest_error=5.7e-06),
    "qwen3_5_moe": Check(
        what="Qwen 3.5, mixture of experts, the text part", largest_error=3.4e-06
    ),
    "qwen3_next": Check(what="Qwen 3 Next", largest_error=4.2e-06),
    "seed_oss": Check(what="Seed-OSS", largest_error=5.8e-07),
    "stablelm": Check(what="StableLM 2", largest_error=9.2e-07),
}
# What mlx-lm 0.32.2 was seen to compute wrongly, in silence.
WRONG: Mapping[str, str] = {
    "ernie4_5_moe": "it drops the correction of the router's scores",
    "glm": "it turns all channels of a head where the model turns half of them",
    "gpt_bigcode": "it computes another GELU than the config names, 1.5e-4 off",
    "jamba": "it normalises the weights of the chosen experts, 0.18 off",
    "recurrent_gemma": "its rows are 7e-4 off",
    "starcoder2": "it computes another GELU than the config names, 1.3e-4 off",
}


def way_out(document: Mapping[str, object]) -> str:
    """Say how a family that ster does not own on cpu may run all the same."""
    family = document.get("model_type")
    if not isinstance(family, str):
        return "config.json names no model_type"
    known = "runs" if family in CHECKED else "may run"
    return (
        f"it {known} through mlx-lm on a GPU: --device metal (or cuda) with the extra "
        "`mlx-lm`, pip install 'ster-mlx[mlx-lm]'"
    )
