"""A checkpoint in a directory of this machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ster.checkpoint.lookalikes import (
    explain_contents,
    explain_file,
    explain_no_weights,
    explain_place,
    explain_tokenizer,
)
from ster.checkpoint.shards import plain_weights
from ster.errors import CheckpointError, ConfigError, TokenizerError, WeightsError

CONFIG = "config.json"


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
        return may_be_file(os.path.join(self.path, name))

    def fetch(self, name: str) -> Path:
        """Return the file's path."""
        return Path(self.path, name)

    def local(self, name: str) -> Path:
        """Return the file's path."""
        return Path(self.path, name)

    def keep(self, names: Iterable[str]) -> None:
        """Do nothing: the files are here."""

    def refuse_unknown(self, name: str) -> None:
        """Do nothing: a file that the directory does not list is not there."""

    def missing_file(self, name: str) -> CheckpointError:
        """Say which of config and tokenizer is missing, and what is there instead."""
        path = os.path.join(self.path, name)
        causes = explain_place(path) or explain_contents(self.names, self.fetch)
        if name == CONFIG:
            causes = causes or self._explain_folders()
            return ConfigError(f"model config is missing: {path}", *causes, path=path)
        causes = causes or list(explain_tokenizer(self.names))
        return TokenizerError(f"tokenizer is missing: {path}", *causes, path=path)

    def missing_weights(self) -> CheckpointError:
        """Say that there are no weights, and name what ster does not read."""
        sentence = "model directory contains no safetensors weights"
        path = os.path.join(self.path, "model.safetensors")
        causes = (
            explain_place(path)
            or explain_contents(self.names, self.fetch)
            or explain_no_weights(self.names)
        )
        return WeightsError(sentence, *causes, path=self.path)

    def _explain_folders(self) -> list[str | BaseException]:
        """Name the folders in this one that may have been meant."""
        with suppress(OSError):
            names = sorted(os.listdir(self.path))
            for folder in names:
                place = os.path.join(self.path, folder)
                if os.path.isfile(os.path.join(place, CONFIG)):
                    return [f"there is one in a folder of it: --model {place}"]
            if not names:
                return ["the folder is empty"]
        return []


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
        causes = [*explain_file(path)] or causes
        raise CheckpointError(f"failed to list {path}", *causes, path=path) from error
    files = (name for name in listed if may_be_file(os.path.join(path, name)))
    return Directory(path=path, names=frozenset(files))


def may_be_file(path: str) -> bool:
    """Tell whether a path is a file; one that may not be looked at counts as a file."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except PermissionError:
        return True
    except OSError:
        return False
