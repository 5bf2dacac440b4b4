"""A made-up checkpoint with experts, and a run of it that notes who was chosen.

``mixture make DIRECTORY`` writes the checkpoint, and prompts.json into it; ``mixture
run FLAGS...`` is ``benchmarks.library``, which has ``rows`` in its answer, too: of each
layer, how many tokens each expert served.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import library
from benchmarks.cases import write_prompts
from ster.decoder.numpy.experts import Experts
from tests.checkpoints import random_ids, tensor_shapes, text, write_checkpoint

CONFIG: MappingProxyType[str, Any] = MappingProxyType(
    {
        "model_type": "qwen3_moe",
        "vocab_size": 4096,
        "hidden_size": 1024,
        "num_hidden_layers": 3,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "intermediate_size": 2048,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
    }
)
PROMPTS, LENGTH = 60, 60


def main() -> None:
    """Do what the first word says."""
    word = sys.argv.pop(1)
    if word == "make":
        make_checkpoint(Path(sys.argv[1]), CONFIG)
    else:
        rows = record_choices()
        print(json.dumps({**library.measure(library.read_options()), "rows": rows}))


def make_checkpoint(directory: Path, config: Mapping[str, Any]) -> None:
    """Write random weights, stored bf16, and prompts of random tokens."""
    rng = np.random.default_rng(0)
    shapes = tensor_shapes(config)
    tensors = {name: draw(rng, shape) for name, shape in shapes.items()}
    write_checkpoint(directory, dict(config), tensors=tensors, dtype="bf16")
    ids = [random_ids(LENGTH, seed, config["vocab_size"]) for seed in range(PROMPTS)]
    write_prompts(directory / "prompts.json", [*map(text, ids)])


def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Draw a tensor; a matrix keeps the size of a row, and a norm is all ones."""
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    values = rng.standard_normal(shape, np.float32)
    values /= np.float32(math.sqrt(shape[-1]))
    return values


def record_choices() -> list[list[int]]:
    """Return a list that will say how many tokens each expert serves, call by call."""
    rows: list[list[int]] = []
    route = Experts.route

    def recording(experts: Experts, x: Any) -> Any:  # noqa: ANN401
        chosen, weights = route(experts, x)
        count = len(experts.spec.experts)
        rows.append(np.bincount(chosen.ravel(), minlength=count).tolist())
        return chosen, weights

    Experts.route = recording  # type: ignore[assignment, method-assign]
    return rows


if __name__ == "__main__":
    main()
