"""Checkpoints of families that run through mlx-lm, from their golden files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.checkpoints import word_tokenizer, write_safetensors
from tests.golden.wide import FOLDER, VOCABULARY, as_published


def read_wide_golden(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return document


def write_wide(
    directory: Path, name: str = "stablelm", *, dtype: str = "f32", **changes: Any
) -> Path:
    """Write a golden file's checkpoint; a change to ``...`` removes a field."""
    document = read_wide_golden(name)
    directory.mkdir(parents=True, exist_ok=True)
    config = {**document["config"], **changes}
    config = {field: value for field, value in config.items() if value is not ...}
    (directory / "config.json").write_text(json.dumps(config))
    word_tokenizer(VOCABULARY).save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text("{}")
    weights = as_published(document)
    write_safetensors(directory / "model.safetensors", weights, dtype)
    return directory


def residuals(name: str) -> np.ndarray:
    """Return the true rows, (num_prompts, num_layers, hidden_size)."""
    records = read_wide_golden(name)["records"]
    return np.array([record["residuals"] for record in records])
