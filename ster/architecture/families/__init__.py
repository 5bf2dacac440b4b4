"""The families that ster reads, one file each: config.json's fields -> ``ModelSpec``.

A family's file names its ``model_type`` and nothing after it asks for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ster.architecture.families import (
    cohere2,
    exaone4,
    gemma,
    glm4,
    gpt2,
    gpt_neox,
    gpt_oss,
    granite,
    llama,
    mistral,
    mixtral,
    olmo,
    phi3,
    qwen,
    qwen_moe,
    seed_oss,
    smollm3,
)
from ster.architecture.fields import Fields
from ster.architecture.spec import ModelSpec

FAMILIES: Mapping[str, Callable[[Fields], ModelSpec]] = {
    "llama": llama.read_llama,
    "mistral": mistral.read_mistral,
    "ministral3": mistral.read_ministral3,
    "qwen2": qwen.read_qwen2,
    "qwen3": qwen.read_qwen3,
    "qwen2_moe": qwen_moe.read_qwen2_moe,
    "qwen3_moe": qwen_moe.read_qwen3_moe,
    "mixtral": mixtral.read_mixtral,
    "gemma": gemma.read_gemma,
    "gemma2": gemma.read_gemma2,
    "gemma3_text": gemma.read_gemma3,
    "phi3": phi3.read_phi3,
    "granite": granite.read_granite,
    "smollm3": smollm3.read_smollm3,
    "olmo2": olmo.read_olmo2,
    "olmo3": olmo.read_olmo3,
    "glm4": glm4.read_glm4,
    "cohere2": cohere2.read_cohere2,
    "exaone4": exaone4.read_exaone4,
    "seed_oss": seed_oss.read_seed_oss,
    "gpt_oss": gpt_oss.read_gpt_oss,
    "gpt2": gpt2.read_gpt2,
    "gpt_neox": gpt_neox.read_gpt_neox,
}
