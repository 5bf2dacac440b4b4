"""Make the golden files with transformers, in float64. Run by hand, see README.md.

    python -m tests.golden.make_golden

Every case is a small random checkpoint written to disk and read by transformers from
there, so its reading of config.json is part of what is recorded.
"""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.checkpoints import (
    Checkpoint,
    Config,
    make_config,
    random_ids,
    write_checkpoint,
)
from tests.golden.golden import FOLDER, SEED, fingerprint

LENGTHS = (1, 2, 7, 8, 9, 24, 40)
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN_PARAMETERS = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 256,
    # With theta, so that the blend begins and ends between two channels.
    "beta_fast": 8.0,
    "beta_slow": 1.0,
    "truncate": False,
    "attention_factor": 1.3,
}
CASES: Mapping[str, tuple[Config, Sequence[int]]] = {
    "qwen3": (make_config("qwen3", tie_word_embeddings=True), LENGTHS),
    "qwen3-bias-window": (
        make_config(
            "qwen3",
            attention_bias=True,
            use_sliding_window=True,
            sliding_window=8,
            max_window_layers=1,
        ),
        LENGTHS,
    ),
    "yarn": (
        make_config(
            head_dim=16,
            max_position_embeddings=128,
            rope_scaling={
                "type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        ),
        (*LENGTHS, 100),
    ),
    "yarn-parameters": (
        make_config(
            head_dim=16,
            max_position_embeddings=1024,
            rope_theta=...,
            rope_parameters=YARN_PARAMETERS,
        ),
        (*LENGTHS, 100),
    ),
    "linear": (
        make_config(rope_scaling={"rope_type": "linear", "factor": 4.0}),
        LENGTHS,
    ),
    "dynamic": (
        make_config(
            max_position_embeddings=16,
            rope_scaling={"rope_type": "dynamic", "factor": 2.0},
        ),
        (2, 15, 16, 17, 24, 40, 100),
    ),
    "llama3-parameters": (
        make_config(
            head_dim=16,
            max_position_embeddings=256,
            rope_theta=...,
            rope_parameters=LLAMA3,
        ),
        (*LENGTHS, 100),
    ),
    "qwen2-window": (
        make_config(
            "qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=1
        ),
        LENGTHS,
    ),
    "llama-biases": (make_config(attention_bias=True, mlp_bias=True), LENGTHS),
    "llama-long": (make_config(max_position_embeddings=1024), (300, 700)),
    "mistral-head-dim": (
        make_config("mistral", head_dim=12, sliding_window=8),
        LENGTHS,
    ),
}


def main() -> None:
    for name, (config, lengths) in CASES.items():
        # Prompts of one seed are prefixes of each other; every other one is not.
        prompts = [random_ids(n, seed=n if i % 2 else 0) for i, n in enumerate(lengths)]
        with tempfile.TemporaryDirectory() as folder:
            made = write_checkpoint(Path(folder), config, seed=SEED)
            rows = [run(made, prompt) for prompt in prompts]
        document = {
            "config": config,
            "seed": SEED,
            "fingerprint": fingerprint(made.tensors),
            "records": [
                {"token_ids": prompt, "residuals": [shortest(row) for row in layers]}
                for prompt, layers in zip(prompts, rows, strict=True)
            ],
        }
        path = FOLDER / f"{name}.json"
        path.write_text(json.dumps(document, separators=(",", ":")) + "\n")
        print(path.name, path.stat().st_size)


def run(checkpoint: Checkpoint, prompt: Sequence[int]) -> list[NDArray[np.float64]]:
    """Return the last token's residual after every block."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    # A new model for each prompt: dynamic scaling remembers the longest one it saw.
    model = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint.directory, dtype=torch.float64, attn_implementation="eager"
    )
    rows: list[NDArray[np.float64]] = []

    def keep(module: Any, inputs: Any, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        rows.append(hidden[0, -1].numpy())

    # Hooks and not hidden_states, whose last entry is after the final norm.
    for layer in model.model.layers:
        layer.register_forward_hook(keep)
    with torch.no_grad():
        model(input_ids=torch.tensor([list(prompt)]), use_cache=False)
    return rows


def shortest(row: NDArray[np.float64]) -> list[float]:
    """Write a row in nine digits, which is more than any tolerance."""
    return [float(f"{value:.9g}") for value in row]


if __name__ == "__main__":
    main()
