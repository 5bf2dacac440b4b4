"""Makes a quantized checkpoint of a plain one: ``quantizer MODEL DIRECTORY BITS``.

It is laid out as mlx-lm's converter does it: groups of 64 with scale and bias in bf16,
the embedding quantized like every other matrix, norms in bf16. Prints
``{"plain_bytes", "packed_bytes"}``, the sizes of the weight files.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ster.checkpoint.resolve import CheckpointFiles, open_files
from ster.checkpoint.stored import StoredTensor
from ster.checkpoint.weight_file import WeightFile
from tests.checkpoints import as_stored, write_safetensors

F32 = NDArray[np.float32]
GROUP = 64
BESIDE = (
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
    *("special_tokens_map.json", "generation_config.json"),
)


def main() -> None:
    """Make the checkpoint that the command line names."""
    model, directory, bits = sys.argv[1:]
    print(json.dumps(make_checkpoint(model, Path(directory), int(bits))))


def make_checkpoint(model: str, directory: Path, bits: int) -> dict[str, int]:
    """Write config, tokenizer and quantized weights; return both sizes.

    Raises:
        SystemExit: The model is quantized already.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files = open_files(model, None)
    config = json.loads(files.require_config().read_bytes())
    if {"quantization", "quantization_config"} & config.keys():
        raise SystemExit(f"{model} is quantized already; MODEL has to be a plain one")
    config["quantization"] = {"group_size": GROUP, "bits": bits}
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name in BESIDE:
        if found := files.find(name):
            shutil.copyfile(found, directory / name)
    packed: dict[str, NDArray[Any]] = {}
    for name, values in read_tensors(files):
        packed |= pack(name, values, bits)
    weights = directory / "model.safetensors"
    write_safetensors(weights, packed, "bf16")
    return {
        "plain_bytes": sum(each.stat().st_size for each in files.all_weight_files()),
        "packed_bytes": weights.stat().st_size,
    }


def read_tensors(files: CheckpointFiles) -> Iterator[tuple[str, F32]]:
    """Read all tensors, as f32."""
    for path in files.all_weight_files():
        file = WeightFile.open(path)
        data, places = file.read_header()
        for name, place in places.items():
            tensor = StoredTensor(
                file=file,
                start=data + place.start,
                dtype=place.dtype,
                shape=place.shape,
            )
            yield name, tensor.as_float32()


def pack(name: str, values: F32, bits: int) -> dict[str, NDArray[Any]]:
    """Return what a tensor becomes: three where it is a matrix of whole groups."""
    if values.ndim != 2 or values.shape[1] % GROUP or not name.endswith(".weight"):
        return {name: values}
    words, scales, biases = quantize(values, bits)
    path = name.removesuffix("weight")
    return {name: words, f"{path}scales": scales, f"{path}biases": biases}


def quantize(values: F32, bits: int) -> tuple[NDArray[np.uint32], F32, F32]:
    """Spread the codes evenly from a group's least value to its largest.

    Args:
        values: (rows, inputs), in whole groups.
        bits: Of a code: 2, 4 or 8, so that words hold whole codes.

    Returns:
        Words, the first code in the lowest bits; scales and biases, which bf16 holds.
    """
    grouped = values.reshape(len(values), -1, GROUP)
    largest = 2**bits - 1
    biases = as_stored(grouped.min(axis=-1), "bf16")
    scales = as_stored((grouped.max(axis=-1) - biases) / largest, "bf16")
    steps = np.where(scales > 0, scales, 1)[..., None]
    codes = np.rint((grouped - biases[..., None]) / steps).clip(0, largest)
    apart = codes.astype(np.uint32).reshape(len(values), -1, 32 // bits)
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return np.bitwise_or.reduce(apart << shifts, axis=-1), scales, biases


if __name__ == "__main__":
    main()
