"""Which files of a checkpoint hold weights: by the index, or by their names alone."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath

from ster.documents.strict_json import read_json
from ster.text import quoted


def plain_weights(names: Collection[str], *not_weights: str) -> tuple[str, ...]:
    """Pick the weight files where no index names them, sorted.

    Args:
        names: The checkpoint's files. Those in folders, hidden ones such as the
            ``._model.safetensors`` that macOS writes, and an adapter are no weights;
            nor are Mistral's own files beside the same weights for transformers.
        not_weights: Words that no weight file has in its name.
    """
    weights = sorted(
        name
        for name in names
        if name.endswith(".safetensors")
        and "/" not in name
        and not name.startswith((".", "adapter_model"))
        and not any(word in name for word in not_weights)
    )
    if any(name.startswith("model") for name in weights):
        weights = [name for name in weights if not name.startswith("consolidated")]
    return tuple(weights)


def parse_index(data: bytes) -> dict[str, str]:
    """Read the shard of every tensor from a safetensors index.

    Raises:
        ValueError: It is no JSON, no index, or names files outside the checkpoint.
    """
    document = read_json(data)
    weight_map = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(weight_map, dict):
        # The file is wrong, not the call, so these are no TypeErrors.
        raise ValueError("it has no weight_map")  # noqa: TRY004
    shard_of: dict[str, str] = {}
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str):
            raise ValueError(f"it names no file for {quoted(tensor)}")  # noqa: TRY004
        shard_of[tensor] = shard
    for shard in sorted(set(shard_of.values())):
        check_shard_name(shard)
    return shard_of


def check_shard_name(shard: str) -> None:
    """Refuse a shard that is no safetensors file below the checkpoint's directory."""
    shown = quoted(shard)
    path = PurePosixPath(shard)
    if path.is_absolute() or ".." in path.parts or "\\" in shard or "\0" in shard:
        raise ValueError(f"it names {shown}, which is outside the checkpoint")
    if path.suffix != ".safetensors":
        raise ValueError(f"it names {shown}, but only safetensors files are read")
