"""Models on the Hugging Face Hub, through its own client and its cache.

The client takes half a second to load, so it is loaded for a Hub id only, and the part
that talks to the network only when there is something to ask for.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ster.checkpoint.hub.cache import (
    COMMIT,
    NOT_WEIGHTS,
    Snapshot,
    cached_snapshot,
    is_revision,
    open_snapshot,
    refuse_no_weights,
    refuse_unpublished,
    remember,
    remember_absent,
)
from ster.checkpoint.hub.passwords import hide_passwords
from ster.checkpoint.shards import plain_weights
from ster.errors import CheckpointError, HubError
from ster.text import quoted

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub import HfApi

# As the client reads it: quoted, perhaps weak. It becomes the name of a file.
ETAG = re.compile(
    r'(?:W/)?"[A-Za-z0-9_-][\w.=+-]{0,199}"|(?!W)[A-Za-z0-9_-][\w.=+-]{0,199}',
    re.ASCII,
)
MODEL_ID = re.compile(r"(?:\b[\w.-]{1,96}\b/)?\b[\w.-]{1,96}\b", re.ASCII)
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

    def local(self, name: str) -> Path | None:  # noqa: ARG002 - Source asks for a name
        """Return None: whether a file is in the cache shows when it is fetched."""
        return None

    def keep(self, names: Iterable[str]) -> None:
        """Make sure that a later run without network finds these files, if any."""
        for name in names:
            if name in self.names:
                self.fetch(name)
            else:
                remember_absent(self.model, self.commit, name)

    def refuse_unknown(self, name: str) -> None:
        """Do nothing: a file that the repository does not list is not there."""

    def missing_file(self, name: str) -> CheckpointError:
        """Say that the repository does not publish the file."""
        return refuse_unpublished(name, self)

    def missing_weights(self) -> CheckpointError:
        """Say that the repository publishes no weights that ster reads."""
        return refuse_no_weights(self)


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
            field="model",
            found=model,
        )
    asked = "main" if revision is None else revision
    if not is_revision(asked):
        cause = (
            f"there is no revision {quoted(asked)}: it is no name of a branch or tag"
        )
        raise HubError(sentence, cause, field="revision", found=asked)
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
        raise HubError(CLIENT_FAILED, hide_passwords(str(error))) from None
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
    with checked_headers(model, commit):
        for _ in range(RESETS_FORGIVEN):
            with suppress(httpx2.ReadError):
                return client.hf_hub_download(model, name, revision=commit)
        return client.hf_hub_download(model, name, revision=commit)


@contextmanager
def checked_headers(model: str, commit: str) -> Iterator[None]:
    """Refuse answers whose headers would lead the client out of its cache.

    The client makes paths of a file's ETag and commit without checking them.
    """
    from huggingface_hub import get_session

    place = f"/{model}/resolve/{commit}/"

    def check(response: httpx2.Response) -> None:
        if response.request.method != "HEAD" or place not in response.request.url.path:
            return
        sent = response.headers.get("X-Repo-Commit")
        if sent is not None and sent != commit:
            raise TypeError("it sends a file of another commit")
        etag = response.headers.get("X-Linked-Etag") or response.headers.get("ETag")
        if etag is not None and not ETAG.fullmatch(etag):
            raise TypeError("it sends a file with an ETag that cannot name one")

    # Other requests, perhaps of other threads, pass the check.
    hooks = get_session().event_hooks["response"]
    hooks.append(check)
    try:
        yield
    finally:
        hooks.remove(check)


def open_client() -> HfApi:
    """Make the Hub's client, with a token that can be sent."""
    try:
        from huggingface_hub import HfApi, get_session, get_token

        token = get_token()
        get_session()  # reads the settings of a proxy
    except (ImportError, ValueError, OSError) as error:
        raise HubError(CLIENT_FAILED, hide_passwords(str(error))) from None
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
    except Exception as error:  # noqa: BLE001 - whatever the client raises ends here
        from ster.checkpoint.hub.failures import explain

        offline_works = cached_snapshot(model, revision) is not None
        cause = explain(error, model, revision, offline_works=offline_works)
        # In a notebook the client's frames would be all that is seen.
        raise HubError(sentence, cause, field="model", found=model) from None


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
