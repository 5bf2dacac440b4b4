"""Which tensors an ablation changes, and how: from the spec to places in the files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ster.architecture.modules import Norm
from ster.architecture.spec import ModelSpec
from ster.architecture.writers import Writer, stream_writers
from ster.checkpoint.matrices import stored_matrix
from ster.checkpoint.resolve import CheckpointFiles
from ster.checkpoint.rewriting import F64, Change
from ster.checkpoint.stored import Stored, StoredTensor
from ster.checkpoint.weight_file import WeightFile
from ster.checkpoint.weights import open_weights
from ster.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What becomes of weight files.

    Args:
        files: Those of the checkpoint, by their names there.
        changes: What changes in them, file by file and in the order of the bytes.
        total_tensors: All tensors that they hold, counted.
    """

    files: Mapping[str, WeightFile]
    changes: Sequence[Change]
    total_tensors: int

    def of_file(self, file: WeightFile) -> list[Change]:
        """List what changes in one of the files."""
        return [each for each in self.changes if each.tensor.file.path == file.path]


def plan_changes(
    files: CheckpointFiles,
    spec: ModelSpec,
    directions: Mapping[int, F64],
    strength: float,
) -> Changes:
    """Open all weight files and find what changes in them.

    Args:
        files: The checkpoint's; on the Hub they are downloaded.
        spec: What config.json says of it.
        directions: By layer, (hidden_size,), of length 1.
        strength: How much of them is taken out; nothing changes at 0.

    Raises:
        WeightsError: A file is damaged, or lacks a tensor of these layers.
        ConfigError: A matrix is quantized.
    """
    opened = {
        name: WeightFile.open(files.source.fetch(name)) for name in files.weight_names()
    }
    paths = [file.path for file in opened.values()]
    modules = spec.modules(directions, head=False)
    found = open_weights(paths, modules, spec.naming, spec.quantization)
    names = {file.path: _names_by_start(file) for file in opened.values()}
    changes: list[Change] = []
    for layer, direction in directions.items() if strength else ():
        block = spec.layers[layer]
        for writer in stream_writers(block):
            before = _before_norm(direction, writer.norm, found, block.prefix)
            for change in _changes(found, block.prefix, writer, before, strength):
                name = _name_of(change.tensor, names)
                changes.append(replace(change, name=name))
    changes.sort(key=lambda each: (each.tensor.file.path, each.tensor.start))
    return Changes(
        files=opened, changes=changes, total_tensors=sum(map(len, names.values()))
    )


def refuse_quantized(path: str) -> ConfigError:
    """Make the refusal of a quantized checkpoint."""
    return ConfigError(
        f"{path} is of a quantized checkpoint, and an ablation would have to quantize "
        "its matrices anew",
        "ablate the checkpoint that it was quantized from, and quantize the result; "
        "where that is not published, `mlx_lm.convert --dequantize` makes one of an "
        "MLX checkpoint",
        path=path,
        field="quantization",
    )


def _before_norm(
    direction: F64, norm: Norm | None, found: dict[str, Stored], prefix: str
) -> F64:
    """Return what to take out of a norm's input, so that its output lacks a direction.

    An RMSNorm makes x / r · w, whose part along v is (v · w) · x / r: it is none where
    x has nothing along v · w, whatever r is.
    """
    if norm is None:
        return direction
    weight = found[f"{prefix}{norm.name}.weight"]
    scaled = direction * (weight.as_float32().astype(np.float64) + norm.offset)
    length = float(np.linalg.norm(scaled))
    return scaled / length if length else scaled


def _changes(
    found: dict[str, Stored],
    prefix: str,
    writer: Writer,
    direction: F64,
    strength: float,
) -> Iterator[Change]:
    """Say what becomes of one matrix and of its bias."""
    stored = stored_matrix(found, prefix, writer.matrix)
    for held, transposed in (
        (stored.weight, stored.place.transposed),
        (stored.bias, False),
    ):
        if held is None:
            continue
        if not isinstance(held, StoredTensor):
            raise refuse_quantized(str(held.words.file.path))
        yield Change(
            name="",
            tensor=held,
            transposed=transposed,
            direction=direction,
            strength=strength,
        )


def _names_by_start(file: WeightFile) -> list[tuple[int, str]]:
    """List a file's tensors by where they begin; those without values come first."""
    data, places = file.read_header()
    ordered = sorted((each.start, each.stop, name) for name, each in places.items())
    return [(data + start, name) for start, _, name in ordered]


def _name_of(
    tensor: StoredTensor, names: Mapping[Path, Sequence[tuple[int, str]]]
) -> str:
    """Name the tensor that one is, or that it is stacked in."""
    starts = names[tensor.file.path]
    at = bisect_right(starts, tensor.start, key=lambda each: each[0])
    return starts[at - 1][1]
