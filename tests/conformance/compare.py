"""How far numbers may be from the truth, and what a test says when they are farther."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32] | NDArray[np.float64]


def tolerance(device: str, precision: str) -> float:
    """Return the largest difference allowed, as a share of a layer's largest value.

    Half width is the worst that was measured on MLX's cpu, and a quarter to a third
    more. In the mean over small random checkpoints transformers is farther from the
    truth at that width, but a single one may lie either way.
    """
    if precision == "f32":
        return 1e-5 if device == "cpu" else 5e-5
    return {"f16": 8e-3, "bf16": 4.5e-2}[precision]


def precisions(device: str) -> tuple[str, ...]:
    return ("f32", "f16") if device == "cpu" else ("f32", "f16", "bf16")


def assert_close(
    actual: Rows, expected: Rows, allowed: float, layers: Sequence[int] | None = None
) -> None:
    """Compare rows, (num_prompts, num_layers, hidden_size), layer by layer."""
    assert actual.dtype == np.float32
    assert actual.shape == expected.shape
    differences = np.abs(actual.astype(np.float64) - expected)
    largest = np.abs(expected).max(axis=(0, 2))
    bad = [
        f"layer {layer}: largest difference {differences[:, i].max():.3e}, mean "
        f"{differences[:, i].mean():.3e}, largest value {largest[i]:.3e}, allowed "
        f"{allowed * largest[i]:.3e}, worst prompt {differences[:, i].max(1).argmax()}"
        for i, layer in enumerate(layers or range(expected.shape[1]))
        # not (a <= b), so that a nan is bad too
        if not differences[:, i].max() <= allowed * largest[i]
    ]
    assert not bad, "\n".join(bad)
