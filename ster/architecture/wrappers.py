"""Models of pictures or sound that wrap a text model: which were checked, and how.

Each was run in transformers 5.24 in float64 on text alone, beside its text model by
itself: the residual streams are the same number for number in all layers. What is not
listed may show tokens to each other that a text model does not, so it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ster.architecture.fields import Fields
from ster.architecture.spec import ModelSpec
from ster.text import quoted

Values = Mapping[str, object]
INNER = "text_config"
TIED = "tie_word_embeddings"
# As transformers 5 calls the text model, as transformers 4 and MLX's files do, and as a
# model saved without its head does.
_LANGUAGE = ("model.language_model.", "language_model.model.", "language_model.")
# The same of the Idefics, as transformers and as MLX's files call it.
_TEXT = ("model.text_model.", "language_model.", "text_model.")
# What stands before the names of the text model's tensors, by the wrapper. Logits are
# the text model's too, with Cohere 2's logit_scale, that transformers 5.24 leaves out
# in a wrapper.
CHECKED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "audioflamingo3": _LANGUAGE,
        "aya_vision": _LANGUAGE,
        "cohere2_vision": _LANGUAGE,
        "deepseek_vl": _LANGUAGE,
        "deepseek_vl_hybrid": _LANGUAGE,
        "exaone4_5": _LANGUAGE,
        "gemma3": _LANGUAGE,
        "got_ocr2": _LANGUAGE,
        "idefics2": _TEXT,
        "idefics3": _TEXT,
        "internvl": _LANGUAGE,
        "janus": _LANGUAGE,
        "lighton_ocr": _LANGUAGE,
        "llava": _LANGUAGE,
        "llava_next": _LANGUAGE,
        "llava_next_video": _LANGUAGE,
        "llava_onevision": _LANGUAGE,
        "mistral3": _LANGUAGE,
        "musicflamingo": _LANGUAGE,
        "ovis2": _LANGUAGE,
        "qwen2_audio": _LANGUAGE,
        "qwen3_asr": _LANGUAGE,
        "smolvlm": _TEXT,
        "vibevoice_asr": _LANGUAGE,
        "video_llama_3": _LANGUAGE,
        "video_llava": _LANGUAGE,
        "vipllava": _LANGUAGE,
        "voxtral": _LANGUAGE,
    }
)
# Whose text models compute something else within them, and what.
WRONG: Mapping[str, str] = MappingProxyType(
    {
        "paligemma": (
            "the tokens of its prompt see those after them too, as those of its text "
            "model alone do not, so a stream read from left to right would not be its "
            "own; use a checkpoint of the text family by itself"
        ),
    }
)
_LIKE_LLAMA: Values = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "rms_norm_eps": 1e-6,
}
_LIKE_QWEN: Values = {
    **_LIKE_LLAMA,
    "vocab_size": 151_936,
    "intermediate_size": 22_016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32_768,
}
# A wrapper's file often says only in what its text model differs from these.
_USUAL: Mapping[str, Values] = MappingProxyType(
    {
        "llama": {
            **_LIKE_LLAMA,
            "vocab_size": 32_000,
            "intermediate_size": 11_008,
            "max_position_embeddings": 2048,
        },
        "mistral": {
            **_LIKE_LLAMA,
            "vocab_size": 32_000,
            "intermediate_size": 14_336,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131_072,
        },
        "qwen2": _LIKE_QWEN,
        "qwen3": {**_LIKE_QWEN, "head_dim": 128},
        "cohere2": {
            "vocab_size": 256_000,
            "hidden_size": 8192,
            "intermediate_size": 22_528,
            "num_hidden_layers": 40,
            "num_attention_heads": 64,
            "max_position_embeddings": 8192,
        },
    }
)
# What a wrapper has for its text model in place of the family's own.
_USUAL_IN: Mapping[str, Values] = MappingProxyType(
    {
        "voxtral": {
            "vocab_size": 131_072,
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "num_hidden_layers": 30,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131_072,
            "rms_norm_eps": 1e-5,
            "head_dim": 128,
            "rope_theta": 1e8,
        },
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
    """A text model in a wrapper that was checked.

    Args:
        fields: The text model's own, with what its file leaves out.
        prefixes: What may stand before its tensors' names.
        head_is_open: The head is the embedding where the file has none.
    """

    fields: Fields
    prefixes: tuple[str, ...]
    head_is_open: bool

    def place(self, spec: ModelSpec) -> ModelSpec:
        """Say of a text model where the wrapper's files have it."""
        fronts = (*self.prefixes, "model.", "")
        naming = replace(spec.naming, prefixes=fronts)
        if not self.head_is_open or spec.head is None:
            return replace(spec, naming=naming)
        head = replace(spec.head, others=(*spec.head.others, spec.embedding))
        return replace(spec, naming=naming, head=head)


def unwrap(document: dict[str, object], path: str) -> Wrapped | None:
    """Take the text model out of a wrapper; None where it is none that was checked."""
    wrapper, inner = document.get("model_type"), document.get(INNER)
    known = isinstance(wrapper, str) and wrapper in CHECKED
    if not known or not isinstance(inner, dict):
        return None
    wrapper, family = str(wrapper), str(inner.get("model_type"))
    usual = {**_USUAL.get(family, {}), **_USUAL_IN.get(wrapper, {})}
    if "rope_parameters" in inner:  # which say the theta themselves
        usual.pop("rope_theta", None)
    _check_flags(document, inner, path)
    # One version of transformers goes by the outer field and another by the inner, and
    # the latest by the file, where that has a head: only false alone settles it.
    stated = {each.get(TIED) for each in (document, inner)} - {None}
    values = {**usual, **inner, TIED: False}
    is_open = stated != {False}
    return Wrapped(
        fields=Fields(values=values, path=path, model_type=family, within=f"{INNER}."),
        prefixes=CHECKED[wrapper],
        head_is_open=is_open,
    )


def _check_flags(outer: Values, inner: Values, path: str) -> None:
    for values, within in ((outer, ""), (inner, f"{INNER}.")):
        family = str(values.get("model_type"))
        fields = Fields(values=values, path=path, model_type=family, within=within)
        fields.flag(TIED, default=False)


def explain_wrapper(document: Values, family: str) -> str:
    """Say why the text model in a wrapper is not read, and the way out."""
    wrapper = str(document.get("model_type"))
    if wrapper in WRONG:
        return WRONG[wrapper]
    return (
        f"it wraps a text model of the family {quoted(family)}, and nobody has checked "
        "that it leaves that model's rows as they are; if it does, save the text model "
        "alone (in transformers, model.get_decoder().save_pretrained) with the "
        "tokenizer beside it"
    )
