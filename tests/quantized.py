"""Quantized checkpoints, and the plain one that each of them stands for.

What a packed weight is worth is worked out here number by number, from the formats'
own papers, and shares no code with ster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.checkpoints import Config, Tensors

F64 = NDArray[np.float64]
# Four bits: a sign, and one of eight sizes.
_SIZES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E2M1 = (*_SIZES, *(-size for size in _SIZES))


def plain_twin(config: Mapping[str, Any], tensors: Tensors) -> tuple[Config, Tensors]:
    """Return the same model without quantization, in f32; a plain one as it is."""
    twin = dict(config)
    how = twin.pop("quantization_config", None)
    if how is None:
        return twin, tensors
    return twin, _twin_of_openai(tensors)


def _twin_of_openai(tensors: Tensors) -> Tensors:
    twin: Tensors = {}
    for name, values in tensors.items():
        if name.endswith("_blocks"):
            scales = tensors[name.replace("_blocks", "_scales")]
            plain = open_mxfp4_blocks(values, scales)
            # transformers holds inputs before outputs.
            twin[name.removesuffix("_blocks")] = plain.swapaxes(1, 2).astype(np.float32)
        elif not name.endswith("_proj_scales"):
            twin[name] = values
    return twin


def open_mxfp4_blocks(blocks: NDArray[Any], scales: NDArray[Any]) -> F64:
    """Return the numbers of blocks of 16 bytes, (experts, outputs, inputs)."""
    made = [
        E2M1[code] * 2.0 ** (int(scale) - 127)
        for block, scale in zip(blocks.reshape(-1, 16), scales.ravel(), strict=True)
        for byte in block
        for code in (int(byte) & 15, int(byte) >> 4)
    ]
    return np.array(made).reshape(*blocks.shape[:2], -1)
