"""A family that ster does not own, as a value, and its config as mlx-lm reads it.

mlx-lm takes from config.json the fields that it knows and drops the others in silence,
so what would change the numbers is brought into its spelling, or refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ster.architecture.fields import LARGEST_COUNT
from ster.errors import ConfigError, PromptError
from ster.text import quoted

Values = dict[str, Any]
MAX_LAYERS = 4096
# What mlx-lm's rotary code computes as transformers does. Of longrope it has only the
# half for long prompts.
SCALINGS = ("default", "linear", "llama3", "dynamic", "yarn", "proportional", "mrope")
# Fields that change numbers, and whether a value is the one that changes none.
_NEUTRAL: Mapping[str, object] = {
    "attn_logit_softcapping": None,
    "attention_multiplier": None,
    "clip_qkv": None,
    "embedding_multiplier": 1,
    "final_logit_softcapping": None,
    "logit_scale": 1,
    "logits_scaling": 1,
    "logits_soft_cap": None,
    "partial_rotary_factor": 1,
    "per_layer_config": None,
    "residual_multiplier": 1,
    "rope_scaling": None,
}
# The same where a family's code has a value built in.
_BUILT_IN: Mapping[str, Mapping[str, object]] = {
    "nanochat": {"final_logit_softcapping": 15},
    "recurrent_gemma": {"partial_rotary_factor": 0.5},
}
# Within which tokens are seen, by what names the layers that have it.
_WINDOWS = {
    "sliding_window": "sliding_attention",
    "attention_chunk_size": "chunked_attention",
}
# Rotary fields that stand beside the scaling or in it.
_ROTARY = ("rope_theta", "partial_rotary_factor")
# How families call the trained length, and the stream's width.
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_WIDTHS = ("hidden_size", "n_embd", "d_model")
# Numbers that JSON does not have, as transformers writes them.
_TAGGED = {"Infinity": float("inf"), "-Infinity": float("-inf")}


@dataclass(frozen=True, slots=True, kw_only=True)
class WideSpec:
    """A decoder that runs as a whole, through mlx-lm's own module.

    Args:
        model_type: What config.json calls the family.
        hidden_size: Width of the residual stream.
        vocab_size: Rows of the embedding.
        num_hidden_layers: Its layers.
        max_position_embeddings: Trained length in tokens.
        max_tokens: Longest stream that is right; None where there is no such bound.
        config: config.json, in mlx-lm's spelling.
        path: The file, for sentences.
        num_values: Values of all weights.
        layer_values: Values of the largest layer.
        token_values: Values that one token has while the largest layer is computed.
        cache_values: Keys and values of one token, in all layers.
        num_heads: Query heads.
    """

    model_type: str
    hidden_size: int
    vocab_size: int
    num_hidden_layers: int
    max_position_embeddings: int
    max_tokens: int | None
    config: Mapping[str, Any] = field(repr=False)
    path: str
    num_values: int
    layer_values: int
    token_values: int
    cache_values: int
    num_heads: int

    def rotary_length(self, num_tokens: int) -> int:
        """Return the same for all prompts; see ``ModelSpec.rotary_length``."""
        del num_tokens
        return 0

    def check_length(self, number: int, num_tokens: int) -> None:
        """Refuse a prompt whose later tokens would see too much.

        Raises:
            PromptError: It is longer than the window that mlx-lm does not know of.
        """
        if self.max_tokens is not None and num_tokens > self.max_tokens:
            raise PromptError(
                f"prompt {number} has {num_tokens} tokens, more than the "
                f"sliding_window of {self.max_tokens} that {self.path} declares",
                f"mlx-lm's {self.model_type} does not know the window, so only prompts "
                "within it have the right rows",
                prompt=number,
                found=num_tokens,
                expected=self.max_tokens,
                field="sliding_window",
            )


def inner_config(config: Values) -> Values:
    """Return the part that describes the language model, the whole where it is one."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def normalise_config(document: Mapping[str, Any], path: str) -> Values:
    """Return the config with rotary fields in every spelling that mlx-lm reads.

    Raises:
        ConfigError: Spellings disagree, or a scaling is not computed as it should be.
    """
    config: Values = json.loads(json.dumps(document), object_hook=_untag)
    inner = inner_config(config)
    if inner is not config:
        # mlx-lm's wrappers have defaults of their own for what stands on one side only.
        for one, other in ((config, inner), (inner, config)):
            for name in ("vocab_size", "tie_word_embeddings"):
                if name in other:
                    one.setdefault(name, other[name])
    for values in (config, inner):
        _normalise_rotary(values, path)
        _normalise_widths(values)
    return config


def _untag(values: Values) -> object:
    tag = values.get("__float__") if len(values) == 1 else None
    return _TAGGED.get(tag, values) if isinstance(tag, str) else values


def _normalise_rotary(values: Values, path: str) -> None:
    parameters = values.get("rope_parameters")
    if isinstance(parameters, dict) and _is_nested(parameters):
        for inner in parameters.values():
            _check_scaling(inner, path)
        return
    merged = _merge_rotary(values, path)
    if not merged:
        return
    kind = _check_scaling(merged, path)
    merged |= {"type": kind, "rope_type": kind}
    if kind in ("llama3", "yarn") and "max_position_embeddings" in values:
        length = values["max_position_embeddings"]
        merged.setdefault("original_max_position_embeddings", length)
    for name in _ROTARY:
        if name in merged:
            values[name] = merged[name]
    values["rope_parameters"] = merged
    # There, theta is a field of its own; and no scaling is no object.
    values["rope_scaling"] = None if kind == "default" else dict(merged)


def _merge_rotary(values: Values, path: str) -> Values:
    merged: Values = {}
    for place in (values.get("rope_parameters"), values.get("rope_scaling")):
        if isinstance(place, dict):
            merged |= {name: v for name, v in place.items() if v is not None}
    for name in _ROTARY:
        outer = values.get(name)
        if outer is not None and merged.setdefault(name, outer) != outer:
            _refuse(path, values, name, outer, f"{merged[name]}, as it is elsewhere")
    return merged


def _normalise_widths(values: Values) -> None:
    """Spell the head width of full-attention layers as published files do."""
    changed = values.get("per_layer_config")
    if not isinstance(changed, dict) or "global_head_dim" in values:
        return
    found = [each for each in changed.values() if isinstance(each, dict)]
    widths = {each.get("head_dim") for each in found}
    if len(widths) == 1 and all(each.keys() == {"head_dim"} for each in found):
        values["global_head_dim"] = widths.pop()
        del values["per_layer_config"]


def _is_nested(parameters: Values) -> bool:
    return bool(parameters) and all(isinstance(v, dict) for v in parameters.values())


def _check_scaling(scaling: Values, path: str) -> str:
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in SCALINGS:
        raise ConfigError(
            f"{path} declares rope_scaling {quoted(str(kind))}; Ster implements "
            f"{', '.join(SCALINGS)} rotary scaling",
            path=path,
            field="rope_scaling",
            found=kind,
            expected=SCALINGS,
        )
    unread = {"attention_factor": None, "truncate": True}
    for name, neutral in unread.items():
        value = scaling.get(name, neutral)
        if kind == "yarn" and value is not None and value != neutral:
            _refuse_unread(path, f"rope_scaling.{name}", value, "yarn")
    return str(kind)


def check_config(document: Mapping[str, Any], path: str) -> None:
    """Refuse what no decoder that writes from left to right declares, and programs.

    Raises:
        ConfigError: The model is bidirectional, or quantized in a format that is not
            MLX's, or its code is a file of the checkpoint.
    """
    values = inner_config(dict(document))
    causal = values.get("is_causal", True) is not False
    if not causal or values.get("use_bidirectional_attention") in (True, "all"):
        name = "use_bidirectional_attention" if causal else "is_causal"
        expected = (
            "left unset: Ster reads models that write from left to right, and the "
            "tokens of this embedding model see those after them too"
        )
        _refuse(path, values, name, values[name], expected)
    for name, value in values.items():
        _check_count(values, name, value, path)
    if "model_file" in document:
        _refuse(path, values, "model_file", document["model_file"], "left unset")
    for place in (document, values):
        if place.get("quantization_config") and not place.get("quantization"):
            raise ConfigError(
                f"{path} is a quantized checkpoint (it declares quantization_config); "
                "Ster maps unquantized safetensors only, so use the checkpoint it was "
                "quantized from",
                path=path,
                field="quantization_config",
                found=place["quantization_config"],
            )


def _check_count(values: Values, name: str, value: object, path: str) -> None:
    """Refuse counts that would end the process, or make it build modules for hours."""
    if not isinstance(value, int):
        return
    if "layers" in name and value > MAX_LAYERS:
        _refuse(path, values, name, value, f"at most {MAX_LAYERS}")
    is_divisor = "head" in name or name in _WIDTHS or name == "vocab_size"
    is_count = name.startswith(("num_", "n_")) or name.endswith(("_size", "_dim"))
    least = 1 if is_divisor and is_count else 0
    if (is_divisor or is_count) and value < least:
        _refuse(path, values, name, value, f"at least {least}")


def check_read(values: Values, reads: Collection[str], path: str) -> int | None:
    """Refuse fields that change numbers and that mlx-lm's family does not read.

    Args:
        values: The language model's config, normalised.
        reads: The fields that mlx-lm's family takes.
        path: For sentences.

    Returns:
        The window within which alone rows are right, where it is not read.

    Raises:
        ConfigError: There is such a field; it is named.
    """
    family = str(values.get("model_type"))
    for name, neutral in {**_NEUTRAL, **_BUILT_IN.get(family, {})}.items():
        value = values.get(name)
        in_rotary = name in ("rope_scaling", "partial_rotary_factor")
        read = name in reads or (in_rotary and "rope_parameters" in reads)
        if not read and value is not None and value != neutral:
            _refuse_unread(path, name, value, family)
    windows = [_unread_window(values, reads, name) for name in _WINDOWS]
    return min((each for each in windows if each is not None), default=None)


def _unread_window(values: Values, reads: Collection[str], name: str) -> int | None:
    window, kind = values.get(name), _WINDOWS[name]
    used = isinstance(window, int) and values.get("use_sliding_window") is not False
    if not used or name in reads or kind not in (values.get("layer_types") or [kind]):
        return None
    return int(str(window))


def read_length(values: Values) -> int:
    """Return the trained length; state-space models have none."""
    for name in _LENGTHS:
        if isinstance(values.get(name), int):
            return int(values[name])
    return LARGEST_COUNT


def read_width(values: Values) -> int | None:
    """Return the width of the residual stream, where the config names it."""
    return next(
        (int(values[n]) for n in _WIDTHS if isinstance(values.get(n), int)), None
    )


def _refuse_unread(path: str, name: str, value: object, family: str) -> NoReturn:
    raise ConfigError(
        f"invalid {family} config {path}",
        f"`{name}` is {json.dumps(value)}, which mlx-lm's {family} does not read, so "
        "its rows would be wrong",
        path=path,
        field=name,
        found=value,
    )


def _refuse(
    path: str, values: Values, name: str, value: object, expected: str
) -> NoReturn:
    family = str(values.get("model_type"))
    raise ConfigError(
        f"invalid {family} config {path}",
        f"`{name}` is {json.dumps(value)}, expected {expected}",
        path=path,
        field=name,
        found=value,
        expected=expected,
    )
