"""The client's cache, laid out as the client documents it: what it holds of a model.

Another tool may have put some of a model's files there and not others, so a file that
is not there may still be published. Three things tell whether it is: the client's list
of all files (``trees``), its marks for files that it asked for in vain (``.no_exist``),
and the same marks that ster leaves when it has seen the list.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ster.checkpoint.lookalikes import (
    explain_contents,
    explain_no_weights,
    explain_tokenizer,
    listed,
)
from ster.checkpoint.shards import plain_weights
from ster.documents.strict_json import JsonError, read_json
from ster.errors import CheckpointError, ConfigError, HubError, WeightsError
from ster.text import quoted

COMMIT = re.compile(r"[0-9a-f]{40}")
NOT_WEIGHTS = ("optimizer", "training_args")
OFFLINE = "it is not in the cache and HF_HUB_OFFLINE is set"
# What a run reads, and no second copy of the weights.
INCLUDED = ("*.json", "*.jinja", "*.safetensors")
EXCLUDED = ("*/*", "consolidated*", "*optimizer*")
# Without one of these a run would not fail, but silently give other results.
TURNING = ("tokenizer_config.json", "chat_template.jinja", "generation_config.json")


class Published(Protocol):
    """What a refusal asks of a model: its id, its files, and one of them."""

    @property
    def model(self) -> str:
        """The model's id."""

    @property
    def names(self) -> frozenset[str]:
        """Its files."""

    def fetch(self, name: str) -> Path:
        """Return the local path of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the cache holds of a model at one commit; the network is never asked.

    Args:
        model: The model's id.
        commit: The commit.
        folder: The commit's files, as links.
        names: The files that the model publishes, as far as that is known.
        is_listed: Whether ``names`` are all of them, from the client's list.
        absence: Why a file is not available, as the beginning of a cause.
    """

    model: str
    commit: str
    folder: Path
    names: frozenset[str]
    is_listed: bool
    absence: str

    @property
    def weights(self) -> tuple[str, ...]:
        """Every safetensors file that holds weights."""
        return plain_weights(self.names, *NOT_WEIGHTS)

    def has_shard(self, name: str) -> bool:  # noqa: ARG002 - Source asks for a name
        """Allow every shard: one that is not cached may not be needed either."""
        return True

    def fetch(self, name: str) -> Path:
        """Return the cached file."""
        path = self.local(name)
        if path is None:
            raise self.missing_file(name)
        return path

    def local(self, name: str) -> Path | None:
        """Return the cached file, or None."""
        path = self.folder / name
        return path if path.is_file() else None

    def keep(self, names: Iterable[str]) -> None:
        """Do nothing: what is in the cache stays there."""

    def refuse_unknown(self, name: str) -> None:
        """Refuse a missing file that may be published and would change the results.

        Raises:
            HubError: It is not known whether there is such a file.
        """
        if name not in TURNING or self.is_absent(name):
            return
        if name == "chat_template.jinja" and self._config_has_template():
            return  # where a model publishes both, they are the same
        is_template = name == "chat_template.jinja"
        without = " (--chat-template off does without)" if is_template else ""
        cause = (
            f"{self.absence}, and whether the model has one is not known{without}; "
            "download the model while online: "
            + download_command(self.model, self.commit)
        )
        raise HubError(f"failed to download {name}", cause, path=name)

    def is_absent(self, name: str) -> bool:
        """Tell whether it is known that the model has no such file."""
        if self.is_listed:
            return name not in self.names
        return (absence_folder(self.folder) / name).is_file()

    def missing_file(self, name: str) -> CheckpointError:
        """Say that the cache does not have the file, and how it gets there."""
        sentence = f"failed to download {name}"
        if self.is_absent(name):
            return refuse_unpublished(name, self)
        command = f"hf download {self.model} {name} --revision {self.commit}"
        cause = f"{self.absence}; download it while online: {command}"
        return HubError(sentence, cause, path=name)

    def missing_weights(self) -> CheckpointError:
        """Say that no weights are cached, or that the model publishes none."""
        if self.is_listed:
            return refuse_no_weights(self)
        command = download_command(self.model, self.commit)
        cause = f"{self.absence}; download it while online: {command}"
        name = "model.safetensors"
        return HubError(f"failed to download {name}", cause, path=name)

    def _config_has_template(self) -> bool:
        path = self.folder / "tokenizer_config.json"
        with suppress(OSError):
            return b'"chat_template"' in path.read_bytes()
        return False


def refuse_unpublished(name: str, source: Published) -> HubError:
    """Say that a repository does not publish a file, and what it has instead."""
    causes = explain_contents(source.names, source.fetch)
    if name == "tokenizer.json":
        causes = causes or explain_tokenizer(source.names)
    cause = "; ".join(["the repository does not have it", *causes])
    return HubError(f"failed to download {name}", cause, path=name)


def refuse_no_weights(source: Published) -> WeightsError:
    """Say that a repository publishes no weights that ster reads."""
    sentence = f"model {source.model} publishes no safetensors weights"
    causes = explain_contents(source.names, source.fetch)
    return WeightsError(sentence, *(causes or explain_no_weights(source.names)))


def open_snapshot(model: str, revision: str) -> Snapshot:
    """Find a revision in the cache."""
    folder = cached_snapshot(model, revision)
    if folder is None:
        raise HubError(
            f"failed to read model repository {model}",
            f"revision {quoted(revision)} is not in the cache and HF_HUB_OFFLINE is "
            "set; download its config, tokenizer and safetensors files while online: "
            + download_command(model, revision),
            field="revision",
            found=revision,
        )
    return read_snapshot(model, folder, OFFLINE)


def open_cache_folder(path: str, revision: str | None) -> Snapshot | None:
    """Open the cache's own folder of a model; None for any other directory.

    Args:
        path: A directory, such as ``.../models--org--name``.
        revision: Which of its snapshots; by default ``main``, else the only one.

    Raises:
        ConfigError: It does not have that snapshot, or several and no ``main``.
    """
    cache = Path(path)
    words = Path(os.path.abspath(path)).name.split("--")
    snapshots = cache / "snapshots"
    if words[0] != "models" or len(words) < 2 or not snapshots.is_dir():
        return None
    commits = sorted(folder.name for folder in snapshots.iterdir() if folder.is_dir())
    commit = noted_commit(cache, "main" if revision is None else revision)
    if commit not in commits and revision is None and len(commits) == 1:
        commit = commits[0]
    if commit is None or commit not in commits:
        wanted = "main" if revision is None else revision
        raise ConfigError(
            f"model config is missing: {os.path.join(path, 'config.json')}",
            "this is a cache folder of the Hub's client, without a snapshot of revision"
            f" {quoted(wanted)}; --revision takes one of these: "
            f"{listed(commits) if commits else 'there is none'}",
            path=path,
            field="revision",
            found=revision,
            expected=tuple(commits),
        )
    absence = f"it is not in {path}"
    return read_snapshot("/".join(words[1:]), snapshots / commit, absence)


def read_snapshot(model: str, folder: Path, absence: str) -> Snapshot:
    """See what a snapshot holds, and what is known of the rest."""
    published = listed_files(folder)
    held = {name for name in os.listdir(folder) if (folder / name).is_file()}
    return Snapshot(
        model=model,
        commit=folder.name,
        folder=folder,
        names=frozenset(held if published is None else held | published),
        is_listed=published is not None,
        absence=absence,
    )


def listed_files(folder: Path) -> set[str] | None:
    """Read the client's list of a commit's files; None where it has left none."""
    path = folder.parent.parent / "trees" / f"{folder.name}.json"
    try:
        document = read_json(path.read_bytes())
    except (OSError, JsonError):
        return None
    files = document.get("files") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(files, dict):
        return None
    return set(files) if document.get("format_version") == 1 else None


def cached_snapshot(model: str, revision: str) -> Path | None:
    """Return the cache's folder for a revision, or None where there is none."""
    cache = cache_folder(model)
    commit = noted_commit(cache, revision)
    folder = cache / "snapshots" / (commit or "")
    return folder if commit is not None and folder.is_dir() else None


def noted_commit(cache: Path, revision: str) -> str | None:
    """Return the commit that a model's cache notes for a revision."""
    commit = revision
    if not COMMIT.fullmatch(revision):
        if not is_revision(revision):
            return None
        try:
            commit = (cache / "refs" / revision).read_text().strip()
        except (OSError, ValueError):
            return None
    return commit if COMMIT.fullmatch(commit) else None


def remember(model: str, revision: str, commit: str) -> None:
    """Note a revision's commit where the client does, for runs that are offline."""
    if revision == commit:
        return
    reference = cache_folder(model) / "refs" / revision
    # A cache that cannot be written to may still have all that this run needs.
    with suppress(OSError):
        reference.parent.mkdir(parents=True, exist_ok=True)
        if not reference.is_file() or reference.read_text() != commit:
            part = reference.with_name(f"{reference.name}.{os.getpid()}.tmp")
            part.write_text(commit)
            part.replace(reference)


def remember_absent(model: str, commit: str, name: str) -> None:
    """Note that a commit has no such file, where the client does."""
    mark = absence_folder(cache_folder(model) / "snapshots" / commit) / name
    with suppress(OSError):
        if not mark.exists():
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()


def absence_folder(snapshot: Path) -> Path:
    """Return where the cache marks the files that a commit does not have."""
    return snapshot.parent.parent / ".no_exist" / snapshot.name


def is_revision(revision: str) -> bool:
    """Tell whether git may have a branch, tag or commit of this name.

    Other names could lead out of the cache, or out of the Hub's own address.
    """
    return (
        revision.isprintable()
        and bool(revision.strip())
        and ".." not in revision
        and "\\" not in revision
        and not any(not part or part[0] == "." for part in revision.split("/"))
    )


def download_command(model: str, revision: str) -> str:
    """Spell the command that puts all that a run reads into the cache."""
    patterns = [f'--include "{pattern}"' for pattern in INCLUDED]
    patterns += [f'--exclude "{pattern}"' for pattern in EXCLUDED]
    return " ".join([f"hf download {model} --revision {revision}", *patterns])


def cache_folder(model: str) -> Path:
    """Return the cache's folder for a model."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE, "--".join(["models", *model.split("/")]))
