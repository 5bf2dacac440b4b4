"""What the steered tables are measured with: a model, a vector and prompts."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.commands import COMMAND_DEVICES, DTYPES, PYTHON, Setup
from benchmarks.process import run

PAIRS = Path(__file__).parent.parent / "assets" / "pairs_happy.json"

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """A model and a vector for it.

    Args:
        model: The chosen one, without the tokens that end a text.
        vector: A steering artifact of one layer in the middle.
        layer: Which.
    """

    model: Path
    vector: Path
    layer: int


def prepare(setup: Setup) -> Steering:
    """Make the model that does not end its texts, and fit a vector of one layer."""
    model, vector = endless(setup), setup.work / "happy.json"
    layer = middle_layer(json.loads((model / "config.json").read_bytes()))
    device = setup.device if setup.device in COMMAND_DEVICES else "cpu"
    run(
        [
            *(*PYTHON, "ster", "vector", "train", "--model", str(model)),
            *("--device", device, "--pairs", str(PAIRS)),
            *("--layers", str(layer), "--output", str(vector)),
        ]
    )
    return Steering(model=model, vector=vector, layer=layer)


def endless(setup: Setup) -> Path:
    """Make the model that does not end its texts."""
    model = setup.work / "endless"
    run([*PYTHON, "benchmarks.endless", setup.model, str(model)])
    return model


def middle_layer(config: dict[str, object]) -> int:
    """Choose a layer in the middle, by config.json."""
    text = config.get("text_config")
    sizes = text if isinstance(text, dict) else config
    for name in ("num_hidden_layers", "n_layer"):
        if isinstance(layers := sizes.get(name), int):
            return layers // 2
    raise SystemExit("config.json does not say how many layers there are")


def spread(items: Sequence[Item], number: int) -> list[Item]:
    """Take so many, evenly over all, since neighbours are of one kind."""
    number = min(number, len(items))
    return [items[at * len(items) // number] for at in range(number)]


def ster_parser(description: str | None) -> argparse.ArgumentParser:
    """Return what reads ``ster_flags``, the input, the strengths and the output."""
    parser = argparse.ArgumentParser(description=description)
    for name in ("--model", "--input", "--device", "--precision", "--vector"):
        parser.add_argument(name, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--strengths", required=True)
    return parser


def ster_flags(setup: Setup, steering: Steering) -> list[str]:
    """Return what ster's programs are told of model and vector."""
    return [
        *("--model", str(steering.model), "--vector", str(steering.vector)),
        *("--device", setup.device, "--precision", setup.precision),
    ]


def peer_flags(setup: Setup, steering: Steering) -> list[str]:
    """Return what the transformers scripts are told of them."""
    return [
        *("--model", str(steering.model), "--vector", str(steering.vector)),
        *("--device", setup.device, "--dtype", DTYPES[setup.precision]),
    ]
