"""The families that ster reads, one file each: config.json's fields -> ``ModelSpec``.

A family's file names its ``model_type`` and nothing after it asks for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ster.architecture.families import granite, llama, mistral, olmo, qwen, smollm3
from ster.architecture.fields import Fields
from ster.architecture.spec import ModelSpec

FAMILIES: Mapping[str, Callable[[Fields], ModelSpec]] = {
    "llama": llama.read_llama,
    "mistral": mistral.read_mistral,
    "qwen2": qwen.read_qwen2,
    "qwen3": qwen.read_qwen3,
    "granite": granite.read_granite,
    "smollm3": smollm3.read_smollm3,
    "olmo2": olmo.read_olmo2,
}
