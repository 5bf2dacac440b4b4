"""Turn ``--model`` into files: a directory on this machine, else a model on the Hub.

Finds, checks and downloads files; never reads a tensor.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ster.checkpoint.directory import CONFIG, open_directory
from ster.checkpoint.hub.cache import open_cache_folder
from ster.checkpoint.hub.repository import open_repository
from ster.checkpoint.lookalikes import (
    ADAPTER_CONFIG,
    POINTER_CAUSE,
    explain_contents,
    explain_place,
    is_pointer,
    read_head,
)
from ster.checkpoint.shards import parse_index
from ster.errors import CheckpointError, ConfigError, TokenizerError, WeightsError
from ster.text import trim

TOKENIZER = "tokenizer.json"
INDEX = "model.safetensors.index.json"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER_COMPANIONS = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)


class Source(Protocol):
    """Where the files of one checkpoint come from."""

    @property
    def names(self) -> frozenset[str]:
        """Files that are known to be there."""

    @property
    def weights(self) -> tuple[str, ...]:
        """Weight files by their names alone, as if there were no index; sorted."""

    def has_shard(self, name: str) -> bool:
        """Tell whether a shard that the index names can be had."""

    def fetch(self, name: str) -> Path:
        """Return the local path of a file, downloading it where that is needed."""

    def local(self, name: str) -> Path | None:
        """Return the path of a file that need not be downloaded, or None."""

    def keep(self, names: Iterable[str]) -> None:
        """Make sure that a later run without network finds these files, if any."""

    def refuse_unknown(self, name: str) -> None:
        """Refuse a missing file if it is unknown whether the checkpoint has it."""

    def missing_file(self, name: str) -> CheckpointError:
        """Make the refusal for a checkpoint without this config or tokenizer."""

    def missing_weights(self) -> CheckpointError:
        """Make the refusal for a checkpoint without safetensors files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFiles:
    """The files of one checkpoint, wherever they lie.

    Ask in the order of the checks: ``require_config``, ``require_tokenizer``,
    ``check_weights``; and for ``weight_files`` last, since it may download gigabytes.

    Args:
        model: ``--model`` as it was given.
        revision: What a document records: a Hub model's commit; for a directory
            ``--revision`` as it was given, or None.
        source: Where the files come from.
    """

    model: str
    revision: str | None
    source: Source

    def find(self, name: str) -> Path | None:
        """Return the local path of a light file, or None where there is none.

        Raises:
            CheckpointError: It is a Git LFS pointer, cannot be fetched, or it cannot be
                known offline whether there is such a file.
        """
        if name not in self.source.names:
            self.source.refuse_unknown(name)
            return None
        path = self.source.fetch(name)
        if _is_pointer(path):
            raise CheckpointError(f"failed to read {path}", POINTER_CAUSE, path=path)
        return path

    def require_config(self) -> Path:
        """Return config.json."""
        path = self._require(CONFIG, GENERATION_CONFIG)
        if _is_pointer(path):
            sentence = f"invalid model config {path}"
            raise ConfigError(sentence, POINTER_CAUSE, path=path)
        return path

    def require_tokenizer(self) -> Path:
        """Return tokenizer.json."""
        path = self._require(TOKENIZER, *TOKENIZER_COMPANIONS)
        if _is_pointer(path):
            sentence = f"failed to load tokenizer {path}: {POINTER_CAUSE}"
            raise TokenizerError(sentence, path=path)
        return path

    def check_weights(self) -> None:
        """Refuse a checkpoint without weights, or with some that cannot be had.

        Raises:
            WeightsError: There are no safetensors files, not all that the index names,
                or an adapter beside them; or one cannot be read.
            HubError: The index cannot be downloaded.
        """
        shard_of = self._read_index()
        shards = self.source.weights if shard_of is None else shard_of.values()
        if not shards:
            raise self.source.missing_weights()
        distinct = sorted(set(shards))
        sentence = map_sentence(len(distinct))
        if ADAPTER_CONFIG in self.source.names:
            causes = explain_contents(self.source.names, self.source.fetch)
            raise WeightsError(sentence, *causes, field=ADAPTER_CONFIG)
        for shard in distinct:
            path = self.source.local(shard)
            if not self.source.has_shard(shard):
                raise WeightsError(
                    sentence,
                    f"{shard} is missing",
                    *([] if path is None else explain_place(str(path))),
                    path=shard,
                )
            if path is not None:
                _check_readable(path, sentence)

    def weight_files(self, tensors: Collection[str]) -> list[Path]:
        """Return the weight files that hold these tensors, on the Hub downloading them.

        Args:
            tensors: Names of tensors. Those that the index does not name are passed
                over: whoever reads the tensors knows which of them are needed.
        """
        shard_of = self._read_index()
        if shard_of is None:
            shards = list(self.source.weights)
        else:
            shards = sorted({shard_of[name] for name in tensors if name in shard_of})
        return [self.source.fetch(shard) for shard in shards]

    def all_weight_files(self) -> list[Path]:
        """Return every weight file, on the Hub downloading what is not there."""
        return [self.source.fetch(shard) for shard in self.weight_names()]

    def weight_names(self) -> list[str]:
        """Name every weight file, some of them perhaps in folders."""
        shard_of = self._read_index()
        shards = self.source.weights if shard_of is None else shard_of.values()
        return sorted(set(shards))

    def local_names(self) -> set[str]:
        """Name every file that a run may read, shards in folders too."""
        light = {CONFIG, GENERATION_CONFIG, TOKENIZER, *TOKENIZER_COMPANIONS, INDEX}
        shards = (self._read_index() or {}).values()
        return (light & self.source.names) | {*self.source.weights, *shards}

    def _require(self, name: str, *companions: str) -> Path:
        """Fetch a file that must be there, and those that are read along with it."""
        if name not in self.source.names:
            raise self.source.missing_file(name)
        path = self.source.fetch(name)
        self.source.keep(companions)
        return path

    def _read_index(self) -> dict[str, str] | None:
        """Return the shard of every tensor, or None where there is no index."""
        path = self.find(INDEX)
        if path is None:
            return None
        try:
            return parse_index(path.read_bytes())
        except (OSError, ValueError) as error:
            sentence = map_sentence(len(self.source.weights))
            raise WeightsError(sentence, f"{path} is no weight index", error) from error


def open_files(model: str, revision: str | None) -> CheckpointFiles:
    """Find the files of ``--model``.

    Args:
        model: An existing directory, else a model id of the Hub.
        revision: Branch, tag or commit on the Hub, or in the Hub's cache folder of a
            model; of any other directory it is only recorded.

    Raises:
        CheckpointError: The directory cannot be listed.
        HubError: The repository cannot be read.
    """
    if not trim(model):
        raise CheckpointError("model must not be empty")
    if os.path.isdir(model) or is_path(model):
        snapshot = open_cache_folder(model, revision)
        if snapshot is not None:
            return CheckpointFiles(
                model=model, revision=snapshot.commit, source=snapshot
            )
        directory = open_directory(model)
        return CheckpointFiles(model=model, revision=revision, source=directory)
    repository = open_repository(model, revision)
    return CheckpointFiles(model=model, revision=repository.commit, source=repository)


def is_path(model: str) -> bool:
    """Tell whether a name that is no directory looks like a path."""
    if "://" in model:
        return False
    return (
        model.startswith((".", "/", "~"))
        or model.endswith("/")
        or "\\" in model
        or model.count("/") > 1
        or os.path.lexists(model)
        or os.path.isdir(os.path.dirname(model))
    )


def local_files(model: str, revision: str | None = None) -> list[str]:
    """List what a run may read of a checkpoint directory; nothing of a Hub model."""
    if not os.path.isdir(model):
        return []
    files = open_files(model, revision)
    places = [files.source.local(name) for name in sorted(files.local_names())]
    return [str(place) for place in places if place is not None]


def _is_pointer(path: Path) -> bool:
    """Tell a Git LFS pointer; an unreadable file is refused later, when it is read."""
    try:
        return is_pointer(read_head(path))
    except OSError:
        return False


def _check_readable(path: Path, sentence: str) -> None:
    """Refuse a weight file that cannot be read, or is a pointer to one."""
    try:
        if is_pointer(read_head(path)):
            cause = f"{path.name} is damaged or cannot be read"
            raise WeightsError(sentence, cause, POINTER_CAUSE, path=path)
    except OSError as error:
        cause = f"{path.name} is damaged or cannot be read"
        raise WeightsError(sentence, cause, error, path=path) from error


def map_sentence(num_files: int) -> str:
    """Say that weight files cannot be used."""
    return f"failed to map {num_files} model weight files"
