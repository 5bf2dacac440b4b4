"""What the steered transformers scripts share: model, vector and hook.

One layer is steered, by a forward hook that adds to what the layer hands on: for each
row of the batch its own strength times the vector, at every token. It imports nothing
of ster.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks.peer import find_device, usable_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """A model, and the vector that one of its layers is steered with."""

    model: Any
    layer: int
    vector: torch.Tensor

    @contextmanager
    def at(self, strengths: torch.Tensor) -> Iterator[None]:
        """Steer each row of a batch at its strength, (num_rows,), while it lasts."""
        added = strengths[:, None, None].to(self.vector) * self.vector

        def add(_module: torch.nn.Module, _args: object, output: Any) -> Any:  # noqa: ANN401
            if isinstance(output, tuple):
                return (output[0] + added, *output[1:])
            return output + added

        hook = self.model.base_model.layers[self.layer].register_forward_hook(add)
        try:
            yield
        finally:
            hook.remove()


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the command line, with the flags that both scripts have."""
    for name in ("--model", "--input", "--vector", "--strengths", "--output"):
        parser.add_argument(name, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch-size", type=int, default=16)
    options = parser.parse_args()
    options.strengths = [float(word) for word in options.strengths.split(",")]
    return options


def load(options: argparse.Namespace) -> Steered:
    """Load the model with its head, and the vector of one layer."""
    device = find_device(options.device)
    if device == "cpu":
        torch.set_num_threads(usable_cores())
    dtype = getattr(torch, options.dtype)
    model = AutoModelForCausalLM.from_pretrained(
        options.model, dtype=dtype, attn_implementation="sdpa"
    )
    with open(options.vector, encoding="utf-8") as file:
        (steered,) = json.load(file)["vectors"]
    vector = torch.tensor(steered["values"], dtype=dtype, device=device)
    return Steered(model=model.eval().to(device), layer=steered["layer"], vector=vector)
