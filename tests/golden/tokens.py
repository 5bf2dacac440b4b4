"""Reads the golden files that make_tokens.py wrote."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.golden.golden import F64, read_golden

FOLDER = Path(__file__).with_name("tokens")
# Windows in every other layer and two norms around both parts; parallel parts, windows
# with rotation and full attention without.
CASES = ("llama-biases", "gemma2", "cohere2")


def read_tokens_of(name: str) -> tuple[list[int], F64]:
    """Return a prompt, and its streams (num_layers, num_tokens, hidden_size)."""
    document = json.loads((FOLDER / f"{name}.json").read_bytes())
    assert document["fingerprint"] == read_golden(name).fingerprint
    return document["token_ids"], np.array(document["streams"])
