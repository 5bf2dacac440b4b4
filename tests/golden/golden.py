"""Reads the golden files that make_golden.py wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parent
SEED = 20
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """A config, a seed for its weights, and what transformers makes of both.

    ``residuals`` is (num_prompts, num_layers, hidden_size).
    """

    config: dict[str, Any]
    seed: int
    fingerprint: str
    prompts: list[list[int]]
    residuals: NDArray[np.float64]


def read_golden(name: str) -> Golden:
    document = json.loads((FOLDER / f"{name}.json").read_text())
    records = document["records"]
    return Golden(
        config=document["config"],
        seed=document["seed"],
        fingerprint=document["fingerprint"],
        prompts=[record["token_ids"] for record in records],
        residuals=np.array([record["residuals"] for record in records]),
    )


def fingerprint(tensors: Mapping[str, NDArray[np.float32]]) -> str:
    """Hash all weights, so that golden numbers are never held against others."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode() + np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()[:16]
