"""What a person may have meant: names that are near one that is not there."""

from __future__ import annotations

import difflib
import os
from itertools import islice

from ster.errors import CheckpointError, HubError, OutputError, SterError
from ster.text import listing, one_line

# Names that are looked at, and that are offered.
MOST_NAMES, OFFERED = 5000, 3
# How alike two names are, at least, without their endings.
LEAST = 0.6
_UNREAD, _UNLISTED = "failed to read model repository ", "failed to list "
# Where an id may be mistyped, rather than not for this person to read.
_UNKNOWN = (
    "no such model",
    "the name is wrong",
    "not in the cache",
    "neither a dir",
    "no connection",
    "did not answer",
)


def suggest(error: SterError) -> list[str]:
    """Return causes that name what is near a path or an id that is not there.

    Args:
        error: What is refused.
    """
    if isinstance(error, OutputError):
        return []
    if isinstance(error, HubError):
        causes = " ".join(error.causes)
        if not any(words in causes for words in _UNKNOWN):
            return []
        return _offer(near_models(error.sentence.removeprefix(_UNREAD).strip('"')))
    path = error.path
    if path == "-" and not os.path.lexists(path):
        return ["- is standard input of prompts and pairs alone; here it is /dev/stdin"]
    # Nobody types the names of the files within a checkpoint.
    is_typed = not isinstance(error, CheckpointError) or error.sentence.startswith(
        _UNLISTED
    )
    if path is None or not is_typed or os.path.lexists(path):
        return []
    return _offer(near_paths(path))


def near_paths(path: str) -> list[str]:
    """Return existing paths that are near one that is not there.

    Of several names in it any may be mistyped.
    """
    folder, name = os.path.split(path.rstrip("/"))
    if not folder or os.path.isdir(folder):
        return [os.path.join(folder, each) for each in _near(name, _names(folder))]
    found: list[str] = []
    for each in near_paths(folder):
        names = _names(each)
        near = [name] if name in names else _near(name, names)
        found += [os.path.join(each, one) for one in near]
    return found[:OFFERED]


def near_models(model: str) -> list[str]:
    """Return models that are near an id: in the local cache, then as directories."""
    from huggingface_hub import constants

    found = [
        name.removeprefix("models--").replace("--", "/")
        for name in _names(constants.HF_HUB_CACHE)
        if name.startswith("models--")
    ]
    last = model.rpartition("/")[2]
    near = _near(model, found)
    near += [each for each in found if each.rpartition("/")[2] == last]
    places = [last, os.path.join("models", last), os.path.join("build", last)]
    near += [each for each in places if last and os.path.isdir(each)]
    near += [place for each in near_paths(model) for place in _checkpoints(each)]
    return [each for each in dict.fromkeys(near) if each != model][:OFFERED]


def is_checkpoint(path: str) -> bool:
    """Tell whether a directory looks like a model's."""
    return os.path.isfile(os.path.join(path, "config.json"))


def _checkpoints(path: str) -> list[str]:
    """Return a directory if it looks like a model's, or else those in it that do."""
    if is_checkpoint(path):
        return [path]
    return [*filter(is_checkpoint, (os.path.join(path, e) for e in _names(path)))]


def _near(name: str, names: list[str]) -> list[str]:
    folded = {each.casefold(): each for each in names}
    near = difflib.get_close_matches(name.casefold(), folded, OFFERED, 0.7)
    # Letters change places, which makes short names look less alike than they are.
    near += [
        e for e in folded if e not in near and sorted(e) == sorted(name.casefold())
    ]
    return [folded[each] for each in near if _stems_are_near(name.casefold(), each)]


def _stems_are_near(one: str, other: str) -> bool:
    """Tell whether names are alike in more than their endings."""
    stems = os.path.splitext(one)[0], os.path.splitext(other)[0]
    return difflib.SequenceMatcher(None, *stems).ratio() >= LEAST


def _names(folder: str) -> list[str]:
    """List a folder's names; none where it cannot be listed."""
    try:
        with os.scandir(folder or ".") as entries:
            found = [each.name for each in islice(entries, MOST_NAMES)]
    except (OSError, ValueError):
        return []
    return sorted(found)


def _offer(near: list[str]) -> list[str]:
    if not near:
        return []
    return [f"did you mean {listing([*map(one_line, near)], 'or')}?"]
