"""Ways to make a run go as a test wants it: its waves, its weights, its decoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ster
import ster.runs.plan
from ster.architecture.config import read_config
from ster.architecture.tensors import extraction_shapes
from ster.checkpoint.weights import open_weights
from ster.decoder.contract import Decoder, Footprint
from ster.decoder.devices import implementation
from ster.errors import SterError
from ster.runs.extraction import extract_rows
from ster.stream.packing import DistinctTokens
from tests.checkpoints import Checkpoint, random_ids, text
from tests.reference import last_rows

Prompts = Sequence[Sequence[int]]
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

    def forced(
        prompts: Prompts, lengths: Sequence[int], *_: Callable[[int, int], object]
    ) -> list[tuple[range, int]]:
        waves = []
        for wave in cut(len(prompts), size):
            distinct = DistinctTokens()
            tokens = sum(distinct.add(prompts[i], lengths[i]) for i in wave)
            waves.append((wave, tokens))
        return waves

    monkeypatch.setattr(ster.runs.plan, "split_waves", forced)


def force_streaming(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """Have no weights stay in memory, as if they were larger than it."""
    module: Any = implementation(device)
    count = module.footprint

    def heavy(*args: Any, **how: Any) -> Footprint:
        footprint: Footprint = replace(count(*args, **how), block_bytes=1 << 60)
        return footprint

    monkeypatch.setattr(module, "footprint", heavy)


def cut(count: int, size: int) -> Iterator[range]:
    """Cut a number of prompts into consecutive waves."""
    for start in range(0, count, size):
        yield range(start, min(start + size, count))


def open_decoder(
    checkpoint: Checkpoint, device: str, *, precision: str = "f32", resident: bool
) -> Decoder[Any]:
    """Open a checkpoint of one file for ``read``."""
    config = read_config(checkpoint.directory / "config.json")
    shapes = extraction_shapes(config, range(config.num_hidden_layers))
    return implementation(device).open_decoder(
        config,
        open_weights([checkpoint.directory / "model.safetensors"], shapes),
        device=device,
        precision=precision,
        resident=resident,
    )


def read(
    decoder: Decoder[Any], prompts: Prompts, layers: Sequence[int]
) -> NDArray[np.float32]:
    """Run one wave."""
    return extract_rows(decoder, prompts, layers, {}, lambda layer: None)


class Pieces:
    """A decoder whose attention runs in pieces of at most ``max_attention_pairs``."""

    def __init__(self, decoder: Decoder[Any], max_attention_pairs: int) -> None:
        self._decoder = decoder
        self.max_attention_pairs = max_attention_pairs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)
