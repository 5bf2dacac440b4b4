"""The wide path: families that ster does not own, run by mlx-lm's own modules.

The only file that imports mlx_lm, which takes seconds, so it is imported late. Rows are
what mlx-lm computes; ``architecture.wide_families`` says for which families they were
checked.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn as mlx_nn

from ster.architecture.fields import LARGEST_COUNT
from ster.architecture.wide import (
    WideSpec,
    check_config,
    check_read,
    inner_config,
    normalise_config,
    read_length,
    read_width,
)
from ster.decoder.contract import Footprint
from ster.decoder.devices import MLX_CPU
from ster.decoder.mlx.decoder import DTYPES, check_available, device_memory
from ster.decoder.mlx.footprint import CACHE_BYTES
from ster.decoder.mlx.taps import Taps
from ster.decoder.mlx.whole_model import MLXWholeModel
from ster.decoder.mlx.whole_weights import MLXWholeWeights, flat_arrays
from ster.errors import ConfigError, DeviceError, SterError

# Its types do not name what it has.
nn: Any = mlx_nn
__all__ = ["check_available", "device_memory"]


class NoMLXLM(Exception):
    """mlx-lm is not installed, or does not have the family.

    Args:
        sentence: What is missing.
        installed: mlx-lm itself is there.
    """

    def __init__(self, sentence: str, *, installed: bool) -> None:
        super().__init__(sentence)
        self.installed = installed


@cache
def import_mlx_lm() -> Any:
    """Import mlx-lm without what its import does to the process.

    Raises:
        NoMLXLM: It is not installed.
    """
    # It lowers the process's limit of open files.
    keep, told = resource.setrlimit, os.environ.get("TRANSFORMERS_VERBOSITY")
    resource.setrlimit = lambda *_: None
    # transformers would say on stderr that there is no torch.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        import mlx_lm
        import mlx_lm.models.cache
        import mlx_lm.utils
    except ImportError as error:
        raise NoMLXLM(str(error), installed=False) from error
    finally:
        resource.setrlimit = keep
        if told is None:
            os.environ.pop("TRANSFORMERS_VERBOSITY", None)
    return mlx_lm


def version() -> str:
    """Return mlx-lm's version."""
    return str(import_mlx_lm().__version__)


def read_wide(document: Mapping[str, Any], path: str) -> WideSpec:
    """Turn config.json of a family that mlx-lm has into what ster needs to know.

    The model is built, without weights, and passed through once without computing
    anything, so that a stream that cannot be read is refused here.

    Raises:
        NoMLXLM: mlx-lm is not installed, or does not have the family.
        ConfigError: A field is refused, or there is no stream to be read.
    """
    import_mlx_lm()
    try:
        return _read(document, path)
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        family = str(document["model_type"])
        raise ConfigError(
            f"invalid {family} config {path}",
            f"a field is not what mlx-lm's {family} expects",
            f"{type(error).__name__}: {error}",
            path=path,
        ) from error


def _read(document: Mapping[str, Any], path: str) -> WideSpec:
    check_config(document, path)
    config = normalise_config(document, path)
    model = make_model(config, path)
    values = inner_config(config)
    args = find_args(model)
    reads = {each.name for each in fields(args)} if args else values.keys()
    window = check_read(values, reads, path)
    layers = find_layers(model, path)
    hidden_size = read_width(values) or int(_embedding(model).weight.shape[1])
    spec = WideSpec(
        model_type=str(config["model_type"]),
        hidden_size=hidden_size,
        vocab_size=int(_embedding(model).weight.shape[0]),
        num_hidden_layers=len(layers),
        max_position_embeddings=min(read_length(values), window or LARGEST_COUNT),
        max_tokens=window,
        config=config,
        path=path,
        num_values=sum(map(_size, _shapes(model))),
        layer_values=max(sum(map(_size, _shapes(layer))) for layer in layers),
        token_values=max(map(_token_values, layers)) + 24 * hidden_size,
        cache_values=len(layers) * _key_values(values, hidden_size),
        num_heads=int(values.get("num_attention_heads") or 1),
        has_experts=_has_experts(model),
    )
    footprint(spec, precision="f32", longest_prompt=1)
    _try_layers(model, spec)
    return spec


def make_model(config: Mapping[str, Any], path: str) -> Any:
    """Build mlx-lm's module for a config, its weights still to come.

    Raises:
        NoMLXLM: mlx-lm does not have the family.
        ConfigError: It does not take the config.
    """
    family = str(config["model_type"])
    try:
        kind, args = import_mlx_lm().utils._get_classes(dict(config))
    except (ValueError, AttributeError, TypeError, ImportError) as error:
        sentence = f"mlx-lm {version()} does not have {family} either"
        raise NoMLXLM(sentence, installed=True) from error
    try:
        model = kind(args.from_dict(dict(config)))
    except Exception as error:  # whatever a family's code trips over
        raise ConfigError(
            f"invalid {family} config {path}",
            f"mlx-lm's {family} does not take it",
            f"{type(error).__name__}: {error}",
            path=path,
        ) from error
    return model


def find_args(model: Any) -> Any:
    """Return the fields that the language model was made from, or None."""
    for _, module in model.named_modules():
        for name in ("args", "config"):
            found = getattr(module, name, None)
            if is_dataclass(found) and not hasattr(found, "text_config"):
                return found
    return None


def find_layers(model: Any, path: str) -> list[Any]:
    """Return the model's own layers, in the order in which it runs them.

    Raises:
        ConfigError: They are no list of modules.
    """
    layers = getattr(model, "layers", None)
    if layers and all(isinstance(layer, nn.Module) for layer in layers):
        return list(layers)
    raise _untapped(str(getattr(model, "model_type", "")), path)("it lists no layers")


def _untapped(family: str, path: str) -> Callable[[str], ConfigError]:
    def refuse(cause: str) -> ConfigError:
        return ConfigError(
            f"the residual stream of {family} cannot be read: {cause} in mlx-lm "
            f"{version()}",
            "there is no single stream that each layer hands on to the next; use a "
            "checkpoint of another family",
            path=path,
            field="model_type",
            found=family,
        )

    return refuse


def _tap(spec: WideSpec, model: Any) -> Taps:
    refuse = _untapped(spec.model_type, spec.path)
    return Taps(find_layers(model, spec.path), spec.hidden_size, refuse)


def _try_layers(model: Any, spec: WideSpec) -> None:
    """Pass through once; nothing is computed, since nothing is asked of the result."""
    taps = _tap(spec, model)
    caches: Any = import_mlx_lm().models.cache
    try:
        with taps.passing((1, 2)):
            model(mx.array([[0, 1]]))
        with taps.passing((1, 2)):
            model(mx.array([[0, 1]]), cache=caches.make_prompt_cache(model))
    except SterError:
        raise
    except Exception as error:  # whatever a family's code trips over
        cause = f"its own code fails ({type(error).__name__}: {error})"
        raise _untapped(spec.model_type, spec.path)(cause) from error


def _has_experts(model: Any) -> bool:
    names = {type(module).__name__ for _, module in model.named_modules()}
    return "SwitchLinear" in names


def check_precision(model: WideSpec, *, device: str, precision: str) -> None:
    """Refuse a width that a device lacks a product for, before a weight is read.

    Raises:
        DeviceError: MLX's own cpu backend, experts and half the width came together.
    """
    if device == MLX_CPU and model.has_experts and precision != "f32":
        raise DeviceError(
            f"MLX on cpu multiplies experts at f32 only, and {model.model_type} has "
            f"experts; use --precision f32, or --device metal or cuda for {precision}",
            path=model.path,
            field="precision",
            found=precision,
            expected="f32",
        )


def _embedding(model: Any) -> Any:
    kinds = (nn.Embedding, nn.QuantizedEmbedding)
    found = [m for _, m in model.named_modules() if isinstance(m, kinds)]
    # The largest; others are of positions, or belong to single layers.
    return max(found, key=lambda each: each.weight.shape[-2])


def _shapes(module: Any) -> list[tuple[int, ...]]:
    return [tuple(each.shape) for each in flat_arrays(module)]


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _token_values(layer: Any) -> int:
    """Count generously what a token has in a layer: every product's row, four times."""
    # Of stacked experts, a token goes through few; each of 16 is counted.
    rows = [
        min(_size(shape[:-2]), 16) * shape[-2]
        for shape in _shapes(layer)
        if len(shape) > 1
    ]
    return 4 * sum(rows)


def _key_values(values: Mapping[str, Any], hidden_size: int) -> int:
    heads = int(values.get("num_attention_heads") or 1)
    kv_heads = int(values.get("num_key_value_heads") or heads)
    head_dim = int(values.get("head_dim") or hidden_size // heads)
    return 2 * max(kv_heads * head_dim, hidden_size)


def footprint(model: WideSpec, *, precision: str, longest_prompt: int) -> Footprint:
    """Count what the model takes: all weights, and generously what is computed."""
    width = DTYPES[precision].size
    weight = float(width)
    if (quantization := model.config.get("quantization")) is not None:
        bits, group = quantization.get("bits", 8), quantization.get("group_size", 32)
        weight = max(1.0, bits / 8 + 8 / group)
    embedding = 2 * width * model.vocab_size * model.hidden_size
    weights = int(weight * model.num_values) + (embedding if weight < width else 0)
    # A layer as stored, and as it becomes, while weights are read.
    opening = (width + 4) * model.layer_values
    scores = 8 * longest_prompt * model.num_heads
    return Footprint(
        # They come and go together.
        blocks=(0,) * model.num_hidden_layers,
        open_bytes=0,
        head_bytes=0,
        embedding_bytes=0,
        token_bytes=4 * model.token_values + scores,
        point_bytes=0,
        key_bytes=8,
        row_bytes=4 * model.hidden_size,
        logit_bytes=28 * model.vocab_size,
        choice_bytes=12 * model.vocab_size,
        cache_bytes=4 * model.cache_values,
        fixed_bytes=weights + opening + CACHE_BYTES,
    )


def hold_weights(model: WideSpec, *, device: str, precision: str) -> MLXWholeWeights:
    """Make what will hold the model's weights."""
    place = mx.Device(mx.cpu if device == MLX_CPU else mx.gpu)
    return MLXWholeWeights(
        model,
        DTYPES[precision],
        place,
        make=partial(make_model, model.config, model.path),
        tap=partial(_tap, model),
    )


def open_decoder(weights: MLXWholeWeights, *, keep: bool) -> MLXWholeModel:
    """Open the model for one run."""
    make_caches = import_mlx_lm().models.cache.make_prompt_cache
    return MLXWholeModel(weights, keep=keep, make_caches=make_caches)
