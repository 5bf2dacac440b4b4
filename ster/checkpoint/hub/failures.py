"""What the Hub's client raises, as one line that says what a person can do about it.

Loads the client: import it only when something was raised.
"""

from __future__ import annotations

import json

import httpx2
from huggingface_hub import constants, errors

from ster.checkpoint.hub.passwords import hide_passwords
from ster.text import quoted

LOGIN = "set HF_TOKEN or run `hf auth login`"
# What the client raises over the answers of a server that is no Hub.
NOT_A_HUB = (
    json.JSONDecodeError,
    KeyError,
    TypeError,
    AttributeError,
    errors.FileMetadataError,
)


def explain(
    error: BaseException, model: str, revision: str, *, offline_works: bool
) -> str:
    """Say in one line what went wrong and what helps.

    Args:
        error: What the client raised.
        model: The model that was asked for.
        revision: The branch, tag or commit that was asked for.
        offline_works: Whether the revision is in the cache, for a run without network.
    """
    while isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__:
        error = error.__cause__
    cause = _explain(error, model, revision)
    if offline_works and is_unreachable(error):
        cause += "; a copy is in the cache, HF_HUB_OFFLINE=1 uses it"
    return hide_passwords(cause)


def _explain(error: BaseException, model: str, revision: str) -> str:
    if isinstance(error, errors.HfHubHTTPError):
        return explain_answer(error, model, revision)
    if isinstance(error, httpx2.HTTPError):
        return explain_silence(error)
    if isinstance(error, NOT_A_HUB):
        return f"{constants.ENDPOINT} does not answer as a Hub does: {line(error)}"
    return line(error)


def explain_answer(error: errors.HfHubHTTPError, model: str, revision: str) -> str:
    """Explain a refusal that the Hub sent."""
    status = error.response.status_code
    page = f"{constants.ENDPOINT}/{model}"
    if isinstance(error, errors.GatedRepoError):
        return f"it is gated ({status}): accept its licence at {page}, then {LOGIN}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"there is no revision {quoted(revision)} ({status}); see {page}"
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return f"the repository does not have it ({status})"
    if isinstance(error, errors.DisabledRepoError):
        return f"the Hub has disabled this model ({status})"
    known = {
        401: f"it needs a token, or the name is wrong (there is no directory of this "
        f"name either): check it, then {LOGIN}",
        403: f"access is refused: accept the licence at {page}, or use another token",
        404: f"there is no such model on {constants.ENDPOINT}, or it is private, "
        "and no directory of this name here",
        429: "the Hub asks for fewer requests; try again in a few minutes",
    }
    if status in known:
        return f"{known[status]} ({status})"
    said = error.server_message or error.response.reason_phrase
    return f"the Hub answered {status}: {' '.join(said.split())}"


def explain_silence(error: httpx2.HTTPError) -> str:
    """Explain that no answer came, or that it broke off."""
    if isinstance(error, httpx2.TimeoutException):
        return f"{constants.ENDPOINT} did not answer in time"
    if isinstance(error, (httpx2.RemoteProtocolError, httpx2.ReadError)):
        return f"the connection to {constants.ENDPOINT} broke off: {line(error)}"
    return f"no connection to {constants.ENDPOINT}: {line(error)}"


def is_unreachable(error: BaseException) -> bool:
    """Tell whether it is the network's or the server's trouble, not the model's."""
    if isinstance(error, errors.HfHubHTTPError):
        return error.response.status_code >= 500
    return isinstance(error, httpx2.HTTPError)


def line(error: BaseException) -> str:
    """Put an error on one line."""
    if isinstance(error, OSError) and error.errno is not None:
        place = f": {error.filename}" if error.filename else ""
        return f"{error.strerror} (os error {error.errno}){place}"
    return " ".join(str(error).split())[:300] or type(error).__name__
