"""Reads the golden files of the wide path, and draws the weights of each."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
FOLDER = Path(__file__).parent / "wide_cases"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
SEED = 20
DELTA_SEED = 21
VOCABULARY = 60


def draw_tensors(shapes: Mapping[str, Sequence[int]], seed: int) -> dict[str, F32]:
    """Draw every tensor from the seed and its own name."""
    return {name: _draw(name, tuple(shape), seed) for name, shape in shapes.items()}


def _draw(name: str, shape: tuple[int, ...], seed: int) -> F32:
    # random() is the part of Python's generator that is promised never to change.
    draw = random.Random(f"{seed} {name}").random
    values = np.array([2 * draw() - 1 for _ in range(int(np.prod(shape)))])
    if name.endswith(("A_log", "D")):
        values = 1 + 0.5 * values
    elif len(shape) == 1 and name.endswith("weight"):
        values = 1 + 0.4 * values
    elif len(shape) < 2:
        values = 0.5 * values
    elif "embed" not in name and "wte" not in name:
        values = 2.2 * values / np.sqrt(shape[-1])
    return values.reshape(shape).astype(np.float32)


def as_published(document: Mapping[str, Any]) -> dict[str, F32]:
    """Draw a golden file's weights, under the names that published files have."""
    tensors = draw_tensors(document["shapes"], document["seed"])
    if document["fused"]:
        tensors = _fuse_experts(tensors)
    prefix = document["prefix"]
    return {
        prefix + name.removeprefix("model.")
        if name.startswith("model.")
        else name: each
        for name, each in tensors.items()
    }


def _fuse_experts(tensors: Mapping[str, F32]) -> dict[str, F32]:
    """Stack the experts of each layer, gate above up."""
    fused: dict[str, F32] = {}
    stacks: dict[str, dict[tuple[int, str], F32]] = {}
    for name, values in tensors.items():
        before, found, after = name.partition(".experts.")
        if not found:
            fused[name] = values
            continue
        number, part, _ = after.split(".")
        stacks.setdefault(f"{before}.experts", {})[int(number), part] = values
    for name, parts in stacks.items():
        numbers = sorted({number for number, _ in parts})
        fused[f"{name}.gate_up_proj"] = np.stack(
            [
                np.concatenate([parts[each, "gate_proj"], parts[each, "up_proj"]])
                for each in numbers
            ]
        )
        fused[f"{name}.down_proj"] = np.stack(
            [parts[each, "down_proj"] for each in numbers]
        )
    return fused


def deltas(num_layers: int, hidden_size: int) -> dict[int, F32]:
    """Draw what is added after each layer."""
    draw = random.Random(f"{DELTA_SEED} deltas").random
    values = np.array([2 * draw() - 1 for _ in range(num_layers * hidden_size)])
    rows = values.reshape(num_layers, hidden_size).astype(np.float32)
    return dict(enumerate(rows))
