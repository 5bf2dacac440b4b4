"""Turn ``--model`` into files: a directory on this machine, else a model on the Hub.

May import ``errors``, ``documents`` and ``checkpoint.hub``; never reads a tensor.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ster.checkpoint.hub.repository import open_repository
from ster.checkpoint.shards import (
    explain_no_weights,
    parse_index,
    plain_weights,
)
from ster.errors import CheckpointError, ConfigError, TokenizerError, WeightsError
from ster.text import trim

CONFIG = "config.json"
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
        """Return the local path of a light file, or None where there is none."""
        return self.source.fetch(name) if name in self.source.names else None

    def require_config(self) -> Path:
        """Return config.json."""
        return self._require(CONFIG, GENERATION_CONFIG)

    def require_tokenizer(self) -> Path:
        """Return tokenizer.json."""
        return self._require(TOKENIZER, *TOKENIZER_COMPANIONS)

    def check_weights(self) -> None:
        """Refuse a checkpoint without weights, or whose index names a missing shard.

        Raises:
            WeightsError: There are no safetensors files, or not all of them.
            HubError: The index cannot be downloaded.
        """
        shard_of = self._read_index()
        shards = self.source.weights if shard_of is None else shard_of.values()
        if not shards:
            raise self.source.missing_weights()
        distinct = sorted(set(shards))
        for shard in distinct:
            if not self.source.has_shard(shard):
                raise WeightsError(map_sentence(len(distinct)), f"{shard} is missing")

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
        # Fetched although this run may not read them: a later run may, and be offline.
        for companion in companions:
            self.find(companion)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A checkpoint in a directory of this machine. Links in it are followed."""

    path: str
    names: frozenset[str]

    @property
    def weights(self) -> tuple[str, ...]:
        """Every top-level safetensors file that is no optimizer's."""
        return plain_weights(self.names, "optimizer")

    def has_shard(self, name: str) -> bool:
        """Tell whether the shard is a file, or a link to one."""
        return os.path.isfile(os.path.join(self.path, name))

    def fetch(self, name: str) -> Path:
        """Return the file's path."""
        return Path(self.path, name)

    def missing_file(self, name: str) -> CheckpointError:
        """Say which of config and tokenizer is missing."""
        path = os.path.join(self.path, name)
        if name == CONFIG:
            return ConfigError(f"model config is missing: {path}")
        causes = []
        if "tokenizer.model" in self.names:
            causes = ["tokenizer.model is there, but only tokenizer.json is read"]
        return TokenizerError(f"tokenizer is missing: {path}", *causes)

    def missing_weights(self) -> CheckpointError:
        """Say that there are no weights, and name those that ster does not read."""
        sentence = "model directory contains no safetensors weights"
        return WeightsError(sentence, *explain_no_weights(self.names))


def open_files(model: str, revision: str | None) -> CheckpointFiles:
    """Find the files of ``--model``.

    Args:
        model: An existing directory, else a model id of the Hub.
        revision: Branch, tag or commit on the Hub; a directory's is only recorded.

    Raises:
        CheckpointError: The directory cannot be listed.
        HubError: The repository cannot be read.
    """
    if not trim(model):
        raise CheckpointError("model must not be empty")
    if os.path.isdir(model) or is_path(model):
        directory = open_directory(model)
        return CheckpointFiles(model=model, revision=revision, source=directory)
    repository = open_repository(model, revision)
    return CheckpointFiles(model=model, revision=repository.commit, source=repository)


def is_path(model: str) -> bool:
    """Tell whether a name that is no directory was meant as a path all the same."""
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


def open_directory(path: str) -> Directory:
    """List a checkpoint directory."""
    try:
        listed = os.listdir(path)
    except (OSError, ValueError) as error:
        causes: list[str | BaseException] = [error]
        if path.startswith("~"):
            causes = [
                "~ stands for the home directory only where the shell expands it: "
                "leave it unquoted, or write the directory in full"
            ]
        raise CheckpointError(f"failed to list {path}", *causes) from error
    files = (name for name in listed if os.path.isfile(os.path.join(path, name)))
    return Directory(path=path, names=frozenset(files))


def local_files(model: str) -> list[str]:
    """List what a run may read of a checkpoint directory; nothing of a Hub model."""
    if not os.path.isdir(model):
        return []
    names = open_files(model, None).local_names()
    return [os.path.join(model, name) for name in sorted(names)]


def map_sentence(num_files: int) -> str:
    """Say that weight files cannot be used."""
    return f"failed to map {num_files} model weight files"
