"""A model for tests of the Hub, and what a run does with its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ster.checkpoint.resolve import open_files
from ster.errors import CheckpointError

MODEL = "org/tiny"
READ = f"failed to read model repository {MODEL}"
INDEX = "model.safetensors.index.json"
LIGHT = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b'{"a": 1}',
    "generation_config.json": b'{"b": 2}',
    "chat_template.jinja": b"{{ x }}",
}
SHARDS = {f"model-0000{i}-of-00003.safetensors": bytes([i]) * 1000 for i in (1, 2, 3)}
WEIGHT_MAP = {
    "model.embed_tokens.weight": "model-00001-of-00003.safetensors",
    "model.layers.0.w": "model-00001-of-00003.safetensors",
    "model.layers.1.w": "model-00002-of-00003.safetensors",
    "model.layers.2.w": "model-00003-of-00003.safetensors",
    "lm_head.weight": "model-00003-of-00003.safetensors",
}
SHARDED = {
    **LIGHT,
    **SHARDS,
    INDEX: json.dumps({"weight_map": WEIGHT_MAP}).encode(),
    "README.md": b"# tiny",
    "pytorch_model.bin": b"a pickle",
    "onnx/model.safetensors": b"not these",
}
SINGLE = {**LIGHT, "model.safetensors": b"weights" * 100}


def load(revision: str | None = None, tensors: tuple[str, ...] = ()) -> list[Path]:
    """Do what a run does with the files; return the weight files."""
    files = open_files(MODEL, revision)
    files.require_config()
    files.require_tokenizer()
    files.check_weights()
    return files.weight_files(tensors)


def refusal(revision: str | None = None) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        load(revision)
    assert "\n" not in str(caught.value)
    return caught.value


def go_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
