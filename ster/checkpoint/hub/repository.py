"""Models on the Hugging Face Hub, through its own client and its cache.

The client takes half a second to load, so it is loaded for a Hub id only, and the part
that talks to the network only when there is something to ask for.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ster.checkpoint.shards import explain_no_weights, plain_weights
from ster.errors import CheckpointError, HubError, WeightsError
from ster.text import quoted

if TYPE_CHECKING:
    from huggingface_hub import HfApi

COMMIT = re.compile(r"[0-9a-f]{40}")
MODEL_ID = re.compile(r"(?:\b[\w.-]{1,96}\b/)?\b[\w.-]{1,96}\b", re.ASCII)
NOT_WEIGHTS = ("optimizer", "training_args")
CLIENT_FAILED = "failed to initialize Hugging Face Hub client"
# The client resumes a body that ends too early, but not one whose connection is reset.
RESETS_FORGIVEN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A model on the Hub at one commit; files are downloaded once, into the cache."""

    model: str
    asked: str
    commit: str
    names: frozenset[str]

    @property
    def weights(self) -> tuple[str, ...]:
        """Every safetensors file of the repository that holds weights."""
        return plain_weights(self.names, *NOT_WEIGHTS)

    def has_shard(self, name: str) -> bool:
        """Tell whether the repository lists the shard."""
        return name in self.names

    def fetch(self, name: str) -> Path:
        """Download a file, unless the cache has it already."""
        sentence = f"failed to download {name}"
        # A bar for each of the small files would only be noise.
        show_bar = name.endswith(".safetensors")
        with refusing(sentence, self.model, self.asked, show_bar=show_bar):
            return Path(download(self.model, name, self.commit))

    def missing_file(self, name: str) -> CheckpointError:
        """Say that the repository does not publish the file."""
        cause = "the repository does not have it"
        if name == "tokenizer.json" and "tokenizer.model" in self.names:
            cause += "; it has a tokenizer.model, which ster does not read"
        return HubError(f"failed to download {name}", cause)

    def missing_weights(self) -> CheckpointError:
        """Say that the repository publishes no weights that ster reads."""
        sentence = f"model {self.model} publishes no safetensors weights"
        return WeightsError(sentence, *explain_no_weights(self.names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the cache holds of a model at one commit; the network is never asked."""

    model: str
    commit: str
    folder: Path
    names: frozenset[str]

    @property
    def weights(self) -> tuple[str, ...]:
        """Every cached safetensors file that holds weights."""
        return plain_weights(self.names, *NOT_WEIGHTS)

    def has_shard(self, name: str) -> bool:  # noqa: ARG002 - Source asks for a name
        """Allow every shard: one that is not cached may not be needed either."""
        return True

    def fetch(self, name: str) -> Path:
        """Return the cached file."""
        path = self.folder / name
        if not path.is_file():
            raise self.missing_file(name)
        return path

    def missing_file(self, name: str) -> CheckpointError:
        """Say that the cache does not have the file, and how it gets there."""
        command = f"hf download {self.model} {name} --revision {self.commit}"
        cause = (
            "it is not in the cache and HF_HUB_OFFLINE is set; "
            f"download it while online: {command}"
        )
        return HubError(f"failed to download {name}", cause)

    def missing_weights(self) -> CheckpointError:
        """Say that no weights are cached, which is not to say that there are none."""
        return self.missing_file("model.safetensors")


def open_repository(model: str, revision: str | None) -> Repository | Snapshot:
    """Resolve a model id to a commit and its list of files.

    Args:
        model: A model id such as ``org/name``.
        revision: Branch, tag or commit; ``main`` where it is None.

    Raises:
        HubError: There is no such model or revision, or it cannot be reached.
    """
    sentence = f"failed to read model repository {model}"
    if not is_model_id(model):
        raise HubError(
            f"failed to read model repository {quoted(model)}",
            "this is neither a directory nor a model id such as org/name",
        )
    asked = "main" if revision is None else revision
    if not asked.isprintable() or not asked.strip():
        raise HubError(sentence, f"there is no revision {quoted(asked)}")
    if is_offline():
        return open_snapshot(model, asked)
    with refusing(sentence, model, asked):
        commit, names = ask_hub(model, asked)
    remember(model, asked, commit)
    return Repository(model=model, asked=asked, commit=commit, names=names)


def is_model_id(model: str) -> bool:
    """Tell whether the Hub may have a model of this name."""
    return (
        MODEL_ID.fullmatch(model) is not None
        and "--" not in model
        and ".." not in model
        and not model.endswith(".git")
    )


def is_offline() -> bool:
    """Tell whether the client is told to leave the network alone."""
    try:
        from huggingface_hub import constants
    except (ImportError, ValueError) as error:
        raise HubError(CLIENT_FAILED, error) from error
    return constants.HF_HUB_OFFLINE


def ask_hub(model: str, revision: str) -> tuple[str, frozenset[str]]:
    """Ask the Hub for a revision's commit and its files: one request."""
    from huggingface_hub import constants

    timeout = constants.HF_HUB_ETAG_TIMEOUT
    info = open_client().model_info(model, revision=revision, timeout=timeout)
    if info.sha is None or not COMMIT.fullmatch(info.sha):
        raise TypeError("it names no commit")
    return info.sha, frozenset(file.rfilename for file in info.siblings or [])


def download(model: str, name: str, commit: str) -> str:
    """Download a file; a connection that is reset gets a few more tries."""
    import httpx2

    client = open_client()
    for _ in range(RESETS_FORGIVEN):
        with suppress(httpx2.ReadError):
            return client.hf_hub_download(model, name, revision=commit)
    return client.hf_hub_download(model, name, revision=commit)


def open_client() -> HfApi:
    """Make the Hub's client, with a token that can be sent."""
    try:
        from huggingface_hub import HfApi, get_session, get_token

        token = get_token()
        get_session()  # reads the settings of a proxy
    except (ImportError, ValueError, OSError) as error:
        raise HubError(CLIENT_FAILED, error) from error
    # The client's own refusal would print the token.
    if token is not None and not (token.isascii() and token.isprintable()):
        raise HubError(CLIENT_FAILED, "the token has characters that no token has")
    return HfApi(user_agent="ster")


@contextmanager
def refusing(
    sentence: str, model: str, revision: str, *, show_bar: bool = False
) -> Iterator[None]:
    """Keep the client quiet, and turn whatever it raises into a ``HubError``."""
    try:
        with quiet_client(show_bar=show_bar):
            yield
    except HubError:
        raise
    except Exception as error:
        from ster.checkpoint.hub.failures import explain

        offline_works = cached_snapshot(model, revision) is not None
        cause = explain(error, model, revision, offline_works=offline_works)
        raise HubError(sentence, cause) from error


@contextmanager
def quiet_client(*, show_bar: bool) -> Iterator[None]:
    """Silence the client's log and warnings, and its bars where nobody watches."""
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    watched = sys.stderr is not None and sys.stderr.isatty()
    hide_bars = not (show_bar and watched) and not are_progress_bars_disabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.CRITICAL)
        if hide_bars:
            disable_progress_bars()
        try:
            yield
        finally:
            logger.setLevel(level)
            if hide_bars:
                enable_progress_bars()


def open_snapshot(model: str, revision: str) -> Snapshot:
    """Find a revision in the cache."""
    folder = cached_snapshot(model, revision)
    if folder is None:
        patterns = '--include "*.json" "*.jinja" "*.safetensors"'
        raise HubError(
            f"failed to read model repository {model}",
            f"revision {quoted(revision)} is not in the cache and HF_HUB_OFFLINE is "
            "set; download its config, tokenizer and safetensors files while online: "
            f"hf download {model} --revision {revision} {patterns}",
        )
    names = frozenset(name for name in os.listdir(folder) if (folder / name).is_file())
    return Snapshot(model=model, commit=folder.name, folder=folder, names=names)


def cached_snapshot(model: str, revision: str) -> Path | None:
    """Return the cache's folder for a revision, or None where there is none."""
    commit = revision
    if not COMMIT.fullmatch(revision):
        reference = reference_path(model, revision)
        try:
            commit = reference.read_text().strip() if reference is not None else ""
        except (OSError, ValueError):
            return None
    folder = cache_folder(model) / "snapshots" / commit
    return folder if COMMIT.fullmatch(commit) and folder.is_dir() else None


def remember(model: str, revision: str, commit: str) -> None:
    """Note a revision's commit where the client does, for runs that are offline."""
    reference = reference_path(model, revision)
    if reference is None or revision == commit:
        return
    # A cache that cannot be written to may still have all that this run needs.
    with suppress(OSError):
        reference.parent.mkdir(parents=True, exist_ok=True)
        if not reference.is_file() or reference.read_text() != commit:
            part = reference.with_name(f"{reference.name}.{os.getpid()}.tmp")
            part.write_text(commit)
            part.replace(reference)


def reference_path(model: str, revision: str) -> Path | None:
    """Return where the cache notes a revision's commit; None outside the cache."""
    path = PurePosixPath(revision)
    if path.is_absolute() or ".." in path.parts or "\\" in revision:
        return None
    return cache_folder(model) / "refs" / path


def cache_folder(model: str) -> Path:
    """Return the cache's folder for a model, laid out as the client documents it."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE, "--".join(["models", *model.split("/")]))
