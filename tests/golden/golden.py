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

from tests.checkpoints import ORACLE_FAMILIES

FOLDER = Path(__file__).parent
TEXTS = FOLDER / "texts"


def _family(name: str) -> str:
    document: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_bytes())
    return str(document["config"]["model_type"])


TOY = "toy"
SEED = 20
NAMES = sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != TOY)
ORACLE_NAMES = [name for name in NAMES if _family(name) in ORACLE_FAMILIES]

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """A prompt with vectors added to every position after some layers.

    Args:
        vectors: By layer, (hidden_size,).
        prompt: Token ids.
        residuals: Before a layer's own vector is added, (num_layers, hidden_size).
        logits: At the last token, (vocab_size,).
        next: The likeliest token.
    """

    vectors: dict[int, F64]
    prompt: list[int]
    residuals: F64
    logits: F64
    next: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The summed log-probability of a response's tokens but the first."""

    response: list[int]
    unsteered: float
    steered: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """A config, a seed for its weights, and what transformers makes of both.

    ``residuals`` is (num_prompts, num_layers, hidden_size), ``logits`` (num_prompts,
    vocab_size), ``next`` the likeliest token after each prompt.
    """

    config: dict[str, Any]
    seed: int
    fingerprint: str
    prompts: list[list[int]]
    residuals: F64
    logits: F64
    next: list[int]
    steered: Steered
    scored: Scored


def read_golden(name: str) -> Golden:
    document = json.loads((FOLDER / f"{name}.json").read_text())
    records, steered, scored = (
        document[key] for key in ("records", "steered", "scored")
    )
    return Golden(
        config=document["config"],
        seed=document["seed"],
        fingerprint=document["fingerprint"],
        prompts=[record["token_ids"] for record in records],
        residuals=np.array([record["residuals"] for record in records]),
        logits=np.array([record["logits"] for record in records]),
        next=[record["next"] for record in records],
        steered=Steered(
            vectors={
                int(layer): np.array(vector)
                for layer, vector in document["steering"].items()
            },
            prompt=steered["token_ids"],
            residuals=np.array(steered["residuals"]),
            logits=np.array(steered["logits"]),
            next=steered["next"],
        ),
        scored=Scored(
            response=scored["token_ids"],
            unsteered=scored["unsteered"],
            steered=scored["steered"],
        ),
    )


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write a golden file, one of its fields a line."""
    lines = (
        f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}"
        for key, value in document.items()
    )
    path.parent.mkdir(exist_ok=True)
    path.write_text("{" + ",\n".join(lines) + "}\n")
    print(path.name, path.stat().st_size)


def published() -> dict[str, Any]:
    """Return what is published about the toy checkpoint."""
    document: dict[str, Any] = json.loads((FOLDER / f"{TOY}.json").read_text())
    return document


def fingerprint(tensors: Mapping[str, NDArray[np.float32]]) -> str:
    """Hash all weights, so that golden numbers are never held against others."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode() + np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()[:16]
