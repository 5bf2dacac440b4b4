"""The plain checkpoint that a quantized one stands for.

What packed bits are worth is worked out here number by number, from what the formats
say of themselves, and shares no code with ster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.checkpoints import Config, Tensors
from tests.packed_draws import Format, format_of, is_fp8

Array = NDArray[Any]
F64 = NDArray[np.float64]
# Four bits: a sign, and one of eight sizes.
_SIZES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E2M1 = (*_SIZES, *(-size for size in _SIZES))


def plain_twin(config: Mapping[str, Any], tensors: Tensors) -> tuple[Config, Tensors]:
    """Return the same model without quantization, in f32; a plain one as it is."""
    declared = ("quantization", "quantization_config")
    twin = {name: value for name, value in config.items() if name not in declared}
    if "quantization" in config:
        opened = open_mlx(config, tensors)
        return twin, as_published(config, opened)
    if is_fp8(config):
        return twin, _open_fp8(config, tensors)
    if "quantization_config" in config:
        return twin, _open_openai(tensors)
    return twin, tensors


def open_mlx(config: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """Return every weight of an MLX checkpoint as numbers, by its own name."""
    opened: Tensors = {}
    for name, values in tensors.items():
        module, _, kind = name.rpartition(".")
        if kind in ("scales", "biases"):
            continue
        opened[name] = values
        scales = tensors.get(f"{module}.scales")
        if kind == "weight" and scales is not None:
            biases = tensors.get(f"{module}.biases")
            inputs = values.shape[-1] * 32 // bits_of(config, module)
            how = format_of(config, module, inputs)
            assert how is not None
            opened[name] = open_packed(values, scales, biases, how).astype(np.float32)
    return opened


def bits_of(config: Mapping[str, Any], module: str) -> int:
    declared = config["quantization"]
    return int(declared.get(module, declared)["bits"])


def open_packed(words: Array, scales: Array, biases: Array | None, how: Format) -> F64:
    """Return the numbers of a weight that MLX packed, (..., outputs, inputs)."""
    worth = _WORTH[how.mode]
    rows = []
    flat = words.reshape(-1, words.shape[-1])
    groups = scales.reshape(-1, scales.shape[-1])
    offsets = np.zeros_like(groups) if biases is None else biases.reshape(groups.shape)
    for row, factors, added in zip(flat, groups, offsets, strict=True):
        codes = list(codes_of(row, how.bits))
        each = [worth(factor) for factor in factors.tolist()]
        rows.append(
            [
                each[i // how.group_size](code) + float(added[i // how.group_size])
                for i, code in enumerate(codes)
            ]
        )
    return np.array(rows).reshape(*words.shape[:-1], -1)


def codes_of(words: Array, bits: int) -> Iterator[int]:
    """Take a row of words as one whole number, its first code in the lowest bits."""
    number = int.from_bytes(words.astype("<u4").tobytes(), "little")
    for i in range(len(words) * 32 // bits):
        yield number >> i * bits & (1 << bits) - 1


def e4m3(code: int) -> float:
    """Return the number of a float of eight bits: four exponent, three fraction."""
    sign = -1.0 if code & 128 else 1.0
    exponent, fraction = code >> 3 & 15, code & 7
    assert (exponent, fraction) != (15, 7), "not a number"
    if exponent == 0:
        return sign * fraction * 2.0**-9
    return sign * (8 + fraction) * 2.0 ** (exponent - 10)


def e8m0(code: int) -> float:
    """Return a power of two, stored with 127 added."""
    return 2.0 ** (code - 127)


# By the mode: a scale -> a code -> the number.
_WORTH: Mapping[str, Callable[[Any], Callable[[int], float]]] = {
    "affine": lambda scale: lambda code: scale * code,
    "mxfp4": lambda scale: lambda code: e8m0(scale) * E2M1[code],
    "mxfp8": lambda scale: lambda code: e8m0(scale) * e4m3(code),
    "nvfp4": lambda scale: lambda code: e4m3(scale) * E2M1[code],
}
_MIXTRAL = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def as_published(config: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """Name and store experts as published files do, that mlx-lm stacks."""
    made: Tensors = {}
    for name, values in tensors.items():
        at, found, part = name.partition(".switch_mlp.")
        if not found:
            made[name] = values
            continue
        part = part.removesuffix(".weight")
        if config["model_type"] == "mixtral":
            part = _MIXTRAL[part]
        for number, one in enumerate(values):
            made[f"{at}.experts.{number}.{part}.weight"] = one
    if config["model_type"] == "gpt_oss":
        return _interleaved(made)
    return made


def _interleaved(tensors: Tensors) -> Tensors:
    """Let gate and up of gpt-oss take turns, inputs before outputs."""
    made: Tensors = {}
    for name, values in tensors.items():
        module, _, kind = name.rpartition(".")
        if ".experts." not in name:
            made[name] = values
            continue
        ending = {"weight": "", "bias": "_bias"}[kind]
        if module.endswith("up_proj"):
            continue
        if module.endswith("gate_proj"):
            up = tensors[f"{module.removesuffix('gate_proj')}up_proj.{kind}"]
            both = np.stack([values, up], axis=2)  # after outputs
            values = both.reshape(values.shape[0], -1, *values.shape[2:])
            module = f"{module.removesuffix('gate_proj')}gate_up_proj"
        made[module + ending] = values.swapaxes(1, 2) if kind == "weight" else values
    return made


def _open_fp8(config: Mapping[str, Any], tensors: Tensors) -> Tensors:
    opened: Tensors = {}
    rows, inputs = config["quantization_config"]["weight_block_size"]
    for name, values in tensors.items():
        scales = tensors.get(f"{name}_scale_inv")
        if name.endswith("_scale_inv"):
            continue
        if scales is None:
            opened[name] = values
            continue
        numbers = [
            [
                e4m3(int(code)) * float(scales[i // rows, j // inputs])
                for j, code in enumerate(row)
            ]
            for i, row in enumerate(values.view(np.uint8))
        ]
        opened[name] = np.array(numbers, np.float32)
    return opened


def _open_openai(tensors: Tensors) -> Tensors:
    opened: Tensors = {}
    for name, values in tensors.items():
        if name.endswith("_blocks"):
            scales = tensors[name.replace("_blocks", "_scales")]
            plain = open_mxfp4_blocks(values, scales)
            # transformers holds inputs before outputs.
            opened[name.removesuffix("_blocks")] = plain.swapaxes(1, 2).astype(
                np.float32
            )
        elif not name.endswith("_proj_scales"):
            opened[name] = values
    return opened


def open_mxfp4_blocks(blocks: Array, scales: Array) -> F64:
    """Return the numbers of blocks of 16 bytes, (experts, outputs, inputs)."""
    made = [
        E2M1[code] * e8m0(int(scale))
        for block, scale in zip(blocks.reshape(-1, 16), scales.ravel(), strict=True)
        for byte in block
        for code in (int(byte) & 15, int(byte) >> 4)
    ]
    return np.array(made).reshape(*blocks.shape[:2], -1)
