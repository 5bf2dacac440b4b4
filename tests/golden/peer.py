"""transformers, in float64: what the golden files are made with.

Attention is ``eager``. Residuals are read by hooks and not from ``hidden_states``,
whose last entry is after the final norm; steering is a hook after the reading one.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Steering = Mapping[int, Sequence[float]]
NO_STEERING: Steering = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one forward pass gives.

    Args:
        streams: Every token's residual, after every block, (num_layers, num_tokens,
            hidden_size).
        logits: Every token's, (num_tokens, vocab_size).
    """

    streams: F64
    logits: F64

    @property
    def residuals(self) -> F64:
        """Return the last token's, after every block, (num_layers, hidden_size)."""
        return self.streams[:, -1]

    @property
    def next(self) -> int:
        """Return the likeliest next token."""
        return int(self.logits[-1].argmax())


def open_model(directory: Path) -> Any:
    """Read a checkpoint; weights become float64 whatever they are stored as."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory,
        dtype=torch.float64,
        attn_implementation="eager",
        experts_implementation="eager",
    )
    return model.double().eval()  # some parts may stay f32 otherwise


def run(model: Any, token_ids: Sequence[int], steering: Steering = NO_STEERING) -> Run:
    """Run one prompt, adding a vector to every position after the given layers."""
    torch: Any = importlib.import_module("torch")
    rows: list[F64] = []
    hooks = []

    def read(module: Any, inputs: Any, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        rows.append(hidden[0].numpy().copy())

    def adder(vector: Sequence[float]) -> Any:
        delta = torch.tensor(vector, dtype=torch.float64)

        def add(module: Any, inputs: Any, output: Any) -> Any:
            if isinstance(output, tuple):
                return (output[0] + delta, *output[1:])
            return output + delta

        return add

    body = model.base_model
    for layer, block in enumerate(body.h if hasattr(body, "h") else body.layers):
        hooks.append(block.register_forward_hook(read))
        if layer in steering:
            hooks.append(block.register_forward_hook(adder(steering[layer])))
    try:
        with torch.no_grad():
            made = model(input_ids=torch.tensor([list(token_ids)]), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return Run(streams=np.stack(rows), logits=made.logits[0].double().numpy())


def log_probability(logits: F64, token_ids: Sequence[int]) -> float:
    """Sum the log-probabilities of tokens given those before; the first has none."""
    shifted = logits[:-1] - logits[:-1].max(axis=-1, keepdims=True)
    every = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return float(every[np.arange(len(token_ids) - 1), list(token_ids[1:])].sum())


def greedy(
    model: Any, token_ids: Sequence[int], count: int, steering: Steering = NO_STEERING
) -> list[int]:
    """Continue a prompt by the likeliest tokens, the whole prompt anew for each."""
    made: list[int] = []
    for _ in range(count):
        made.append(run(model, [*token_ids, *made], steering).next)
    return made


def shortest(values: NDArray[Any], digits: int = 9) -> Any:
    """Write numbers in nine digits, which is more than any tolerance."""
    if np.ndim(values):
        return [shortest(each, digits) for each in values]
    return float(f"{values:.{digits}g}")
