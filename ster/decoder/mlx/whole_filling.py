"""Filling mlx-lm's module with a checkpoint's tensors, each of which has a place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import mlx.core as mx
from mlx import nn as mlx_nn

from ster.architecture.wide_fields import UNSCALED
from ster.errors import WeightsError

# Its types do not name what it has.
nn: Any = mlx_nn
Arrays = dict[str, mx.array]
# What mlx-lm drops on purpose: tables that it computes anew, the head of a tied model,
# towers for pictures and sound, layers that only guess ahead, scales of float8.
_KNOWN_TO_DROP = re.compile(
    r"rotary_emb|inv_freq|(^|\.)lm_head\.|(^|\.)mtp\.|vision|visual|audio|"
    r"multi_modal_projector|(^|\.)(input|output)_(max|min)$|attention\.rope|"
    r"masked_bias$|attn\.bias$"
)
# Added to the scores by which experts are chosen.
_CHOICE_BIAS = re.compile(r"(e_score_correction_bias|expert_bias)$")

# By bits and group size, the formats whose values are small floats.
_FLOAT_MODES = {(4, 16): "nvfp4", (4, 32): "mxfp4", (8, 32): "mxfp8"}


def fill(
    make: Callable[[], Any],
    weights: Arrays,
    config: Mapping[str, Any],
    dtype: mx.Dtype,
) -> Any:
    """Give a new module its weights as mlx-lm itself does; nothing is read yet.

    Args:
        make: Builds the module, without its weights.
        weights: All tensors of the checkpoint.
        config: config.json, in mlx-lm's spelling.
        dtype: The width of weights and stream.

    Returns:
        The module.

    Raises:
        WeightsError: A tensor has no place in the module.
    """
    model = make()
    if hasattr(model, "sanitize"):
        _refuse_dropped(lambda given: make().sanitize(given), weights, config)
        weights = model.sanitize(weights)
    _scale(weights, config)
    quantization = config.get("quantization")
    if quantization is not None:
        _quantize(model, weights, quantization)
    casts = getattr(model, "cast_predicate", lambda _: True)
    for name, values in weights.items():
        if mx.issubdtype(values.dtype, mx.floating):
            wide = dtype if casts(name) else mx.float32
            weights[name] = values.astype(wide)
    _raise_choices(weights, config)
    model.eval()
    model.load_weights(list(weights.items()), strict=True)
    return model


def _quantize(model: Any, weights: Arrays, quantization: Mapping[str, Any]) -> None:
    """Make its matrices quantized ones where the file has scales beside them."""

    def is_quantized(name: str, module: Any) -> Any:
        if name in quantization:
            return quantization[name]
        if hasattr(module, "to_quantized") and f"{name}.scales" in weights:
            return _packing(name, module, weights)
        return False

    nn.quantize(
        model,
        group_size=quantization["group_size"],
        bits=quantization["bits"],
        mode=quantization.get("mode", "affine"),
        class_predicate=is_quantized,
    )


def _packing(name: str, module: Any, weights: Arrays) -> dict[str, Any]:
    """Tell from a packed matrix's shape how it was packed; the default may differ.

    Raises:
        ValueError: There is no such packing.
    """
    width, scales = module.weight.shape[-1], weights[f"{name}.scales"]
    group_size = width // scales.shape[-1]
    bits = weights[f"{name}.weight"].shape[-1] * 32 // width
    mode = "affine"
    # Only those of whole numbers have scales that are numbers.
    if scales.dtype == mx.uint8:
        if (bits, group_size) not in _FLOAT_MODES:
            raise ValueError(
                f"{name} is packed in {bits} bits and groups of {group_size}"
            )
        mode = _FLOAT_MODES[bits, group_size]
    return {"group_size": group_size, "bits": bits, "mode": mode}


def _raise_choices(weights: Arrays, config: Mapping[str, Any]) -> None:
    """Keep every score by which experts are chosen above zero.

    Where experts stand in groups, mlx-lm gives those of the groups left out a zero, and
    transformers less than anything: a negative score would lose against a zero. What is
    added to all scores alike changes no choice.
    """
    inner = config.get("text_config")
    values = inner if isinstance(inner, dict) else config
    if (values.get("n_group") or 1) < 2:
        return
    for name, bias in weights.items():
        if _CHOICE_BIAS.search(name):
            weights[name] = bias - mx.minimum(bias.min(), 0)


def _scale(weights: Arrays, config: Mapping[str, Any]) -> None:
    """Multiply what mlx-lm forgets to; of a packed matrix, the scales and biases."""
    family = str(config.get("model_type"))
    for module, field in UNSCALED.get(family, {}).items():
        factor = config[field]
        for name, values in weights.items():
            *_, owner, part = ("", *name.split("."))
            # The value's own bias is added after the factor was.
            is_free = part == "bias" and module == "v_proj"
            if owner == module and mx.issubdtype(values.dtype, mx.floating):
                weights[name] = values if is_free else values * factor


def _refuse_dropped(
    sanitize: Callable[[Arrays], Arrays], stored: Arrays, config: Mapping[str, Any]
) -> None:
    """Refuse a checkpoint with tensors that mlx-lm leaves out, beside those it may.

    Raises:
        WeightsError: Names one.
    """
    for name in _dropped(sanitize, stored):
        if _KNOWN_TO_DROP.search(name) or _is_beyond(name, config):
            continue
        family = str(config.get("model_type"))
        raise WeightsError(
            f"mlx-lm's {family} has no place for the tensor {name}",
            "it would leave it out in silence, and the rows would be another model's; "
            "use the checkpoint as it was published",
            field=name,
        )


def _is_beyond(name: str, config: Mapping[str, Any]) -> bool:
    """Tell whether a tensor is of a layer past the last, or of keys that it shares."""
    inner = config.get("text_config")
    values = inner if isinstance(inner, dict) else config
    found, count = (
        re.search(r"\.layers\.(\d+)\.", name),
        values.get("num_hidden_layers"),
    )
    if not found or not isinstance(count, int):
        return False
    number = int(found[1])
    if number >= count:
        # As many as the file says are there to guess ahead; transformers skips them.
        return number < count + int(values.get("num_nextn_predict_layers") or 0)
    shared = int(values.get("num_kv_shared_layers") or 0)
    takes_keys = re.search(r"\.self_attn\.(k_proj|v_proj|k_norm|v_norm)\.", name)
    return takes_keys is not None and number >= count - shared


def _dropped(sanitize: Callable[[Arrays], Arrays], stored: Arrays) -> Iterator[str]:
    """List tensors without which the module gets the very same ones.

    One stands for those whose names differ in numbers only, of those that did not come
    through as they are. Nothing is read: others of their shapes stand in for all, since
    some families multiply theirs in place; and some change the module itself, so each
    look at them is a new one's.
    """
    given = {name: mx.zeros(each.shape, each.dtype) for name, each in stored.items()}
    kept = sanitize(dict(given))
    through = {id(each) for each in kept.values()}
    patterns = {
        re.sub(r"\d+", "#", name): name
        for name, each in reversed(given.items())
        if id(each) not in through
    }
    for name in patterns.values():
        others = {other: each for other, each in given.items() if other != name}
        try:
            without = sanitize(others)
        except (LookupError, ValueError, TypeError, AttributeError):
            continue  # it looked for that tensor
        if _shapes(without) == _shapes(kept):
            yield name


def _shapes(weights: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: tuple(each.shape) for name, each in weights.items()}
