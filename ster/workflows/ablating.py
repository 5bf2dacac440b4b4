"""A checkpoint that can no longer write along a vector: a copy with other weights."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ster.architecture.config import is_owned, read_document, resolve_config
from ster.architecture.spec import ModelSpec
from ster.checkpoint.resolve import INDEX, CheckpointFiles, open_files
from ster.checkpoint.rewriting import F64, Change, rewrite_file
from ster.checkpoint.weight_file import WeightFile
from ster.documents.whole_directories import whole_directory
from ster.errors import (
    CheckpointError,
    ConfigError,
    DirectionError,
    OutputError,
    require_number,
    require_type,
)
from ster.reporting import QuietReporter, Reporter
from ster.text import allowed_megabytes, megabytes, one_line
from ster.vectors.steering import SteeringVector
from ster.workflows.ablated_weights import plan_changes, refuse_quantized
from ster.workflows.compatibility import check_ablated

# What is copied besides the weights: config, tokenizer, template, licence. What says
# how another checkpoint was trained or measured is not.
LIGHT_SUFFIXES = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".py")
LICENCES = ("LICENSE", "LICENCE", "NOTICE", "USE_POLICY", "COPYING")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """What was written.

    Args:
        artifact: The file of the vector, None where it was read from none.
        model: The model as it was named.
        model_revision: Its revision, None where there is none.
        output: The new directory.
        trait_name: What the vector points towards.
        strength: How much of the direction was taken out; 1 is all.
        layers: The blocks that were changed.
        files: Every file of the new directory.
        rewritten: The tensors whose values were changed, in the files' order.
        parameters: Their values, counted.
        total_tensors: All tensors of the checkpoint, counted.
    """

    artifact: str | None
    model: str
    model_revision: str | None
    output: str
    trait_name: str
    strength: float
    layers: tuple[int, ...]
    files: tuple[str, ...]
    rewritten: tuple[str, ...]
    parameters: int
    total_tensors: int

    @property
    def copied_tensors(self) -> int:
        """How many tensors are as they were."""
        return self.total_tensors - len(self.rewritten)

    @property
    def document(self) -> dict[str, object]:
        """The report."""
        return {
            "artifact": self.artifact,
            "copied_tensors": self.copied_tensors,
            "files": list(self.files),
            "layers": list(self.layers),
            "model": self.model,
            "model_revision": self.model_revision,
            "output": self.output,
            "parameters": self.parameters,
            "rewritten": list(self.rewritten),
            "strength": self.strength,
            "total_tensors": self.total_tensors,
            "trait_name": self.trait_name,
        }


def ablate(
    model: str | os.PathLike[str],
    vector: SteeringVector,
    output: str | os.PathLike[str],
    *,
    strength: float = 1.0,
    revision: str | None = None,
    reporter: Reporter | None = None,
) -> Ablation:
    """Write a copy of a checkpoint whose blocks no longer write along a vector.

    In each layer of the vector, with u its direction there at length 1, each matrix W
    that writes to the residual stream, attention's o_proj and the feed-forward part's
    down_proj, becomes W - strength · u (uᵀ W), and its bias b, if it has one, becomes
    b - strength · u (u · b). Where a norm stands between the matrix and the stream, u
    is the direction before the norm, so that nothing comes out of it along the vector.
    Embedding and other layers still write as they did.

    Args:
        model: A directory, or the id of a model on the Hugging Face Hub.
        vector: Of this model; the lengths of its directions do not count.
        output: The new directory. The files keep their names, and the tensors their
            names, shapes and types.
        strength: How much of the direction is taken out; 1 is all, 0 is a plain copy.
        revision: Branch, tag or commit on the Hub.
        reporter: As for ``load``.

    Raises:
        SterError: The vector or the checkpoint is refused, or the directory cannot be
            written. Nothing is left then.

    Example:
        >>> import ster
        >>> ster.write_toy_checkpoint("toy")
        >>> first = ster.SteeringVector.of([1.0] + [0.0] * 63, layers=2, model="toy")
        >>> ster.ablate("toy", first, "toy-ablated").rewritten  # doctest: +ELLIPSIS
        ('model.layers.2...down_proj.weight', 'model.layers.2...o_proj.weight')
    """
    require_type(vector, SteeringVector, "vector")
    strength = _check_strength(strength)
    reporter = reporter or QuietReporter()
    files = open_files(os.fspath(model), revision)
    config = files.require_config()
    files.check_weights()
    spec = _read_spec(config)
    check_ablated(vector, files.model, spec, reporter)
    directions = _unit_directions(vector)
    place = os.fspath(output)
    with whole_directory(place) as staging:
        copied = list(_copy_light(files, staging))
        work = plan_changes(files, spec, directions, strength)
        _check_room(work.files.values(), place, staging)
        for name, file in work.files.items():
            reporter.note(f"writing {one_line(name)}")
            _write_weights(file, work.of_file(file), os.path.join(staging, name))
    return Ablation(
        artifact=vector.source,
        model=files.model,
        model_revision=files.revision,
        output=place,
        trait_name=vector.trait_name,
        strength=strength,
        layers=vector.layers,
        files=tuple(sorted([*copied, *work.files])),
        rewritten=tuple(dict.fromkeys(each.name for each in work.changes)),
        parameters=sum(math.prod(each.tensor.shape) for each in work.changes),
        total_tensors=work.total_tensors,
    )


def _check_strength(strength: float) -> float:
    number = require_number(strength, "strength")
    if not math.isfinite(number):
        sentence = f"a strength must be finite, not {number}"
        raise DirectionError(sentence, field="strength", found=strength)
    return number


def _read_spec(config: Path) -> ModelSpec:
    """Read config.json; refuse what has no matrices that could be changed.

    Raises:
        ConfigError: The family is not ster's own, or its weights are quantized.
    """
    document = read_document(config)
    if not is_owned(document):
        refusal = "an ablation rewrites matrices by name, and Ster does not know those "
        family = document.get("model_type")
        raise ConfigError(
            f"{refusal}of the family {one_line(str(family))}",
            "`ster models` lists the families that it computes itself, numpy or MLX",
            path=config,
            field="model_type",
            found=family,
        )
    spec = resolve_config(document, str(config))
    if spec.quantization is not None:
        raise refuse_quantized(str(config))
    return spec


def _unit_directions(vector: SteeringVector) -> dict[int, F64]:
    directions: dict[int, F64] = {}
    for layer, values in zip(vector.layers, vector.array, strict=True):
        wide = values.astype(np.float64)
        length = float(np.linalg.norm(wide))
        if not length:
            sentence = f"the vector has no direction at layer {layer}: it is zero there"
            raise DirectionError(sentence, layer=layer)
        directions[layer] = wide / length
    return directions


def _copy_light(files: CheckpointFiles, staging: str) -> Iterator[str]:
    """Copy config, tokenizer and the like; yield their names."""
    for name in sorted(files.source.names):
        path = files.find(name) if _is_light(name) else None
        if path is None:
            continue
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CheckpointError(f"failed to read {path}", error, path=path) from error
        with open(os.path.join(staging, name), "wb") as file:
            file.write(data)
        yield name


def _is_light(name: str) -> bool:
    if "/" in name or name.startswith("."):
        return False
    if name.endswith(".index.json"):  # of weights that are in another format
        return name == INDEX
    return name.endswith(LIGHT_SUFFIXES) or name.upper().startswith(LICENCES)


def _check_room(files: Iterable[WeightFile], place: str, staging: str) -> None:
    """Refuse what the disk has no room for, before the first gigabyte is written."""
    needed = sum(file.size for file in files)
    free = shutil.disk_usage(staging).free
    if needed > free:
        raise OutputError(
            f"failed to write {place}",
            f"it takes {megabytes(needed)}, and the disk has "
            f"{allowed_megabytes(free)} free",
            path=place,
            found=free,
            expected=needed,
        )


def _write_weights(file: WeightFile, changes: list[Change], path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as written:
        rewrite_file(file, changes, written.write)
        written.flush()
        os.fsync(written.fileno())
