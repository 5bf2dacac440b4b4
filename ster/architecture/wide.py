"""A family that ster does not own, as a value, and its config as mlx-lm reads it.

mlx-lm takes from config.json the fields that it knows and drops the others in silence,
so what would change the numbers is brought into its spelling, or refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ster.architecture.fields import LARGEST_COUNT
from ster.architecture.wide_counts import WIDTHS, check_counts
from ster.architecture.wide_families import CHECKED
from ster.architecture.wide_fields import (
    NEEDS_SCALING,
    built_in,
    fill_absent,
    normalises_alone,
)
from ster.architecture.wide_quantization import check_wide_quantization
from ster.architecture.wide_refusals import Values, refuse_field, refuse_unread
from ster.architecture.wide_rotary import normalise_rotary
from ster.errors import PromptError

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
# How families call the trained length.
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
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
        has_experts: Some of its products choose among stacked matrices.
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
    has_experts: bool

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
    family = str(config.get("model_type"))
    if family in CHECKED:
        _check_built_in(inner, family, path)
        fill_absent(inner, family)
    for values in (config, inner):
        normalise_rotary(values, path, family)
        _normalise_widths(values)
    return config


def _untag(values: Values) -> object:
    tag = values.get("__float__") if len(values) == 1 else None
    return _TAGGED.get(tag, values) if isinstance(tag, str) else values


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


def _check_built_in(values: Values, family: str, path: str) -> None:
    """Refuse values that mlx-lm's code of a checked family does not compute.

    Args:
        values: The language model's config.
        family: The checkpoint's ``model_type``, that of the wrapper where it has one.
        path: For sentences.

    Raises:
        ConfigError: There is one; its field is named.
    """
    for name, allowed in built_in(family).items():
        value = values.get(name)
        if value is not None and value not in allowed:
            shown = " or ".join(json.dumps(each) for each in allowed)
            expected = f"{shown}, which is what mlx-lm's {family} computes"
            refuse_field(path, values, name, value, expected)
    if normalises_alone(values, family):
        expected = f"at least 2: mlx-lm's {family} does not normalise a lone expert"
        refuse_field(path, values, "num_experts_per_tok", 1, expected)
    scaled = values.get("rope_parameters") or values.get("rope_scaling")
    if family in NEEDS_SCALING and not scaled:
        refuse_field(path, values, "rope_parameters", None, "an object")


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
        refuse_field(path, values, name, values[name], expected)
    check_counts(values, partial(refuse_field, path, values))
    if "model_file" in document:
        refuse_field(path, values, "model_file", document["model_file"], "left unset")
    check_wide_quantization(document, path)


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
            refuse_unread(path, name, value, family)
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
        (int(values[n]) for n in WIDTHS if isinstance(values.get(n), int)), None
    )
