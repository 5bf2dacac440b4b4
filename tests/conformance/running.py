"""Ways to make a run go as a test wants it: its waves, its weights, its decoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ster
import ster.runs.plan
from ster.architecture.config import read_config
from ster.checkpoint.weights import open_weights
from ster.decoder.contract import Decoder, DeviceMemory, Footprint
from ster.decoder.devices import implementation
from ster.errors import SterError
from ster.runs.plan import Plan
from ster.runs.wave import read_rows
from ster.runs.work import Budget, Work
from ster.stream.changes import Deltas
from tests.checkpoints import Checkpoint, random_ids, text
from tests.reference import last_rows

Prompts = Sequence[Sequence[int]]
NO_DELTAS: Deltas = {}
FEW = [random_ids(length, seed=length) for length in (1, 5, 24)]


def rows_of(
    model: Path | Checkpoint,
    prompts: Prompts = FEW,
    device: str = "cpu",
    **how: Any,
) -> NDArray[np.float32]:
    """Read all layers of some prompts, given as token ids."""
    runtime = ster.load(str(model), device=device, **how)
    return runtime.activations([text(prompt) for prompt in prompts]).array


def truth(checkpoint: Checkpoint, prompts: Prompts = FEW) -> NDArray[np.float64]:
    """Ask the oracle for the same."""
    config, tensors = checkpoint.config, checkpoint.tensors
    return np.stack([last_rows(config, tensors, prompt) for prompt in prompts])


def refusal(model: Path | Checkpoint, prompts: Prompts = FEW) -> str:
    """Return what a run is refused with."""
    with pytest.raises(SterError) as refused:
        rows_of(model, prompts)
    return str(refused.value)


def force_waves(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Have every run go in waves of ``size`` prompts, as if memory were short."""

    plan_run = ster.runs.plan.plan_run

    def forced(work: Work, budget: Budget) -> Plan:
        return plan_run(replace(work, max_prompts=size), budget)

    monkeypatch.setattr("ster.runs.session.plan_run", forced)


def force_streaming(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """Have no weights stay in memory, as if they were larger than it."""
    module: Any = implementation(device)
    count = module.footprint

    def heavy(*args: Any, **how: Any) -> Footprint:
        footprint: Footprint = replace(count(*args, **how), blocks=(1 << 60,) * 99)
        return footprint

    monkeypatch.setattr(module, "footprint", heavy)


def no_memory_held(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """Have plans count from nothing, so that their bytes can be foretold."""
    nothing = DeviceMemory(held=0, limit=1 << 62)
    monkeypatch.setattr(implementation(device), "device_memory", lambda device: nothing)


def cut(count: int, size: int) -> Iterator[range]:
    """Cut a number of prompts into consecutive waves."""
    for start in range(0, count, size):
        yield range(start, min(start + size, count))


def open_decoder(
    checkpoint: Checkpoint, device: str, *, precision: str = "f32", keep: bool
) -> Decoder[Any]:
    """Open a checkpoint of one file for ``read`` and ``logits_of``."""
    spec = read_config(checkpoint.directory / "config.json")
    modules = spec.modules(range(spec.num_hidden_layers), head=True)
    decoders = implementation(device)
    weights = decoders.hold_weights(spec, device=device, precision=precision)
    file = checkpoint.directory / "model.safetensors"
    weights.add(open_weights([file], modules, spec.naming, spec.quantization))
    return decoders.open_decoder(weights, keep=keep)


def read(
    decoder: Decoder[Any], prompts: Prompts, layers: Sequence[int]
) -> NDArray[np.float32]:
    """Run one wave."""
    [rows] = read_rows(decoder, prompts, layers, {}, lambda layer: None)
    return rows


def read_points(
    decoder: Decoder[Any],
    prompts: Prompts,
    layers: Sequence[int],
    points: Sequence[str],
    deltas: Deltas = NO_DELTAS,
) -> dict[str, NDArray[np.float32]]:
    """Run one wave, and read several points of its blocks."""
    rows = read_rows(
        decoder, prompts, layers, deltas, lambda layer: None, points=points
    )
    return dict(zip(points, rows, strict=True))


class Pieces:
    """A decoder whose attention runs in pieces of at most ``max_attention_pairs``."""

    def __init__(self, decoder: Decoder[Any], max_attention_pairs: int) -> None:
        self._decoder = decoder
        self.max_attention_pairs = max_attention_pairs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)
