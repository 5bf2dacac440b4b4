"""A family that ster does not own, as a value, and its config as mlx-lm reads it.

mlx-lm takes from config.json the fields that it knows and drops the others in silence,
so what would change the numbers is brought into its spelling, or refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ster.architecture.fields import LARGEST_COUNT
from ster.errors import ConfigError, PromptError
from ster.text import quoted

Values = dict[str, Any]
# What mlx-lm's rotary code computes as transformers does. Of longrope it has only the
# half for long prompts.
SCALINGS = ("default", "linear", "llama3", "dynamic", "yarn", "proportional", "mrope")
# Fields that change numbers, and whether a value is the one that changes none.
_NEUTRAL: Mapping[str, Callable[[Any], bool]] = {
    "attn_logit_softcapping": lambda value: False,
    "attention_multiplier": lambda value: False,
    "clip_qkv": lambda value: False,
    "embedding_multiplier": lambda value: value == 1,
    "final_logit_softcapping": lambda value: False,
    "logit_scale": lambda value: value == 1,
    "logits_scaling": lambda value: value == 1,
    "logits_soft_cap": lambda value: False,
    "partial_rotary_factor": lambda value: value == 1,
    "residual_multiplier": lambda value: value == 1,
    "rope_scaling": lambda value: False,
    "attention_chunk_size": lambda value: False,
}
# How families call the trained length.
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")


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
    config: Values = json.loads(json.dumps(document))
    for values in (config, inner_config(config)):
        _normalise_rotary(values, path)
    return config


def _normalise_rotary(values: Values, path: str) -> None:
    parameters = values.get("rope_parameters")
    if isinstance(parameters, dict) and _is_nested(parameters):
        for inner in parameters.values():
            _check_scaling(inner, path)
        return
    merged: Values = {}
    for place in (parameters, values.get("rope_scaling")):
        if isinstance(place, dict):
            merged |= {name: v for name, v in place.items() if v is not None}
    for name in ("rope_theta", "partial_rotary_factor"):
        outer = values.get(name)
        if outer is not None and merged.setdefault(name, outer) != outer:
            _refuse(path, values, name, outer, f"{merged[name]}, as it is elsewhere")
    if not merged:
        return
    kind = _check_scaling(merged, path)
    merged |= {"type": kind, "rope_type": kind}
    if kind in ("llama3", "yarn") and "max_position_embeddings" in values:
        length = values["max_position_embeddings"]
        merged.setdefault("original_max_position_embeddings", length)
    for name in ("rope_theta", "partial_rotary_factor"):
        if name in merged:
            values[name] = merged[name]
    values["rope_parameters"] = merged
    # There, theta is a field of its own; and no scaling is no object.
    values["rope_scaling"] = None if kind == "default" else dict(merged)


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
    for name, neutral in _NEUTRAL.items():
        value = values.get(name)
        if name == "rope_scaling" and "rope_parameters" in reads:
            continue
        if name == "partial_rotary_factor" and "rope_parameters" in reads:
            continue
        if name not in reads and value is not None and not neutral(value):
            _refuse_unread(path, name, value, family)
    window = values.get("sliding_window")
    used = isinstance(window, int) and values.get("use_sliding_window") is not False
    if not used or "sliding_window" in reads:
        return None
    layer_types = values.get("layer_types") or ["sliding_attention"]
    return int(str(window)) if "sliding_attention" in layer_types else None


def read_length(values: Values) -> int:
    """Return the trained length; state-space models have none."""
    for name in _LENGTHS:
        if isinstance(values.get(name), int):
            return int(values[name])
    return LARGEST_COUNT


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
