"""Quantized tensors drawn at random, so that no library's rounding is in them.

Every word of packed bits is as likely as any other; scales are such that weights are
about as large as those of a plain checkpoint. Names are those of the files that mlx-lm
writes, and of those that DeepSeek and Qwen publish in fp8.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.expert_families import loudness

Array = NDArray[Any]
Shapes = dict[str, tuple[int, ...]]
Draw = Callable[[], float]


class Format(NamedTuple):
    """How a matrix is stored, in config.json's words."""

    mode: str
    bits: int
    group_size: int


def format_of(config: Mapping[str, Any], module: str, inputs: int) -> Format | None:
    """Return how MLX stores a module; None where it is left as it is.

    What has an entry goes by it alone, and is affine where that names no mode. What has
    none goes by the default, if its width can be split into groups.
    """
    declared = config["quantization"]
    entry = declared.get(module, declared)
    if entry is False or inputs % entry["group_size"]:
        return None
    return Format(entry.get("mode", "affine"), entry["bits"], entry["group_size"])


# Mixtral's own words for an expert's matrices.
_MIXTRAL = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
_ONE_EXPERT = re.compile(r"(.+\.)experts\.(\d+)\.(\w+)\.weight")


def as_mlx_names(shapes: Shapes) -> Shapes:
    """Rename and stack experts as mlx-lm does."""
    made: Shapes = {}
    for name, shape in shapes.items():
        one = _ONE_EXPERT.fullmatch(name)
        if one is not None:
            part = _MIXTRAL.get(one[3], one[3])
            stacked = f"{one[1]}switch_mlp.{part}.weight"
            made[stacked] = (int(one[2]) + 1, *shape)
        elif ".experts." in name:
            made |= _of_gpt_oss(name, shape)
        else:
            made[name] = shape
    return made


def _of_gpt_oss(name: str, shape: tuple[int, ...]) -> Shapes:
    """Take gate and up apart; inputs come last."""
    at, _, part = name.rpartition(".")
    module = part.removesuffix("_bias")
    halves = ("gate_proj", "up_proj") if module == "gate_up_proj" else (module,)
    outputs = shape[-1] // len(halves)
    if part.endswith("_bias"):
        return {f"{at}.{half}.bias": (shape[0], outputs) for half in halves}
    return {f"{at}.{half}.weight": (shape[0], outputs, shape[1]) for half in halves}


def packed_tensors(
    config: Mapping[str, Any], shapes: Shapes, seed: int
) -> Iterator[tuple[str, dict[str, Array]]]:
    """Yield the weights that are quantized, each with what is stored in its stead."""
    for name, shape in shapes.items():
        module, _, kind = name.rpartition(".")
        if kind != "weight" or len(shape) < 2:
            continue
        draw = random.Random(f"{seed} packed {name}").random
        size = 2.2 / math.sqrt(3 * shape[-1]) * loudness(name)
        if "embed_tokens" in name:
            size = 0.6
        if is_fp8(config):
            if name.startswith("model.layers.") and module.endswith("_proj"):
                yield name, _fp8(module, shape, _block_of(config), size, draw)
        elif (how := format_of(config, module, shape[-1])) is not None:
            yield name, _of_mlx(module, shape, how, size, draw)


def is_fp8(config: Mapping[str, Any]) -> bool:
    declared: Mapping[str, Any] = config.get("quantization_config", {})
    return declared.get("quant_method") == "fp8"


def is_packed(config: Mapping[str, Any]) -> bool:
    """Tell whether any of the tensors are drawn here."""
    return "quantization" in config or is_fp8(config)


def _block_of(config: Mapping[str, Any]) -> tuple[int, int]:
    rows, inputs = config["quantization_config"]["weight_block_size"]
    return rows, inputs


def _of_mlx(
    module: str, shape: tuple[int, ...], how: Format, size: float, draw: Draw
) -> dict[str, Array]:
    *outer, inputs = shape
    grouped = (*outer, inputs // how.group_size)
    made: dict[str, Array] = {}
    if how.mode == "mxfp8":
        codes = [_fp8_code(draw) for _ in range(math.prod(shape))]
        made["weight"] = np.array(codes, np.uint8).reshape(shape).view("<u4")
    else:
        packed = (*outer, inputs * how.bits // 32)
        words = [int(draw() * 2**32) for _ in range(math.prod(packed))]
        made["weight"] = np.array(words, np.uint32).reshape(packed)
    if how.mode == "affine":
        made |= _scales_and_biases(grouped, how.bits, size, draw)
    else:
        middle = _SCALE_BYTE[how.mode](size)
        spread = 12 if how.mode == "nvfp4" else 2
        low = max(middle - spread // 2, 1)
        scales = [low + int(draw() * (spread + 1)) for _ in range(math.prod(grouped))]
        made["scales"] = np.array(scales, np.uint8).reshape(grouped)
    return {f"{module}.{kind}": values for kind, values in made.items()}


# The root mean square of all of e2m1's numbers, and of those that are drawn of e4m3's.
_E2M1_SIZE, _E4M3_SIZE = 2.93, 8.0
_SCALE_BYTE: Mapping[str, Callable[[float], int]] = {
    "mxfp4": lambda size: 127 + round(math.log2(size / _E2M1_SIZE)),
    "mxfp8": lambda size: 127 + round(math.log2(size / _E4M3_SIZE)),
    # e4m3 itself: an exponent that 7 is added to, above three bits.
    "nvfp4": lambda size: round(8 * (7 + math.log2(size / _E2M1_SIZE))),
}


def _fp8_code(draw: Draw) -> int:
    """Draw a number of e4m3 of either sign, below 32: also those next to zero."""
    return int(draw() * 0x60) + 128 * int(draw() * 2)


def _scales_and_biases(
    shape: tuple[int, ...], bits: int, size: float, draw: Draw
) -> dict[str, Array]:
    """Draw scales of either sign, and biases that keep the numbers about zero."""
    scales, biases = [], []
    for _ in range(math.prod(shape)):
        width = 2 * math.sqrt(3) * size * (0.6 + 0.8 * draw())
        sign = 1 if draw() < 0.7 else -1
        scales.append(sign * width / (2**bits - 1))
        biases.append(-sign * width / 2 * (0.8 + 0.4 * draw()))
    return {
        "scales": np.array(scales, np.float32).reshape(shape),
        "biases": np.array(biases, np.float32).reshape(shape),
    }


def _fp8(
    module: str, shape: tuple[int, ...], block: tuple[int, int], size: float, draw: Draw
) -> dict[str, Array]:
    codes = np.array([_fp8_code(draw) for _ in range(math.prod(shape))], np.uint8)
    blocks = [math.ceil(n / each) for n, each in zip(shape, block, strict=True)]
    scales = [size / _E4M3_SIZE * (0.5 + draw()) for _ in range(math.prod(blocks))]
    return {
        f"{module}.weight": codes.view(np.int8).reshape(shape),
        f"{module}.weight_scale_inv": np.array(scales, np.float32).reshape(blocks),
    }
