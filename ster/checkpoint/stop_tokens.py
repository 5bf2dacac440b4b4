"""The tokens that end a text, from config.json and generation_config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ster.documents.strict_json import read_json
from ster.errors import ConfigError


class ConfigFiles(Protocol):
    """What this asks of a checkpoint's files."""

    def find(self, name: str) -> Path | None:
        """Return the local path of a light file, or None where there is none."""


def read_stop_ids(files: ConfigFiles) -> frozenset[int]:
    """Collect ``eos_token_id`` of both files: either may be a number or a list.

    Chat models often end a turn with a token that only generation_config.json names.

    Raises:
        ConfigError: A file cannot be read, or holds something else.
    """
    ids: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        path = files.find(name)
        if path is not None:
            ids.update(_read(path))
    return frozenset(ids)


def _read(path: Path) -> list[int]:
    try:
        document = read_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"failed to read {path}", error, path=path) from error
    except ValueError as error:
        raise ConfigError(f"invalid model config {path}", error, path=path) from error
    declared = document.get("eos_token_id") if isinstance(document, dict) else None
    ids = declared if isinstance(declared, list) else [declared]
    found: list[int] = []
    for token in ids:
        if isinstance(token, int) and not isinstance(token, bool):
            found.append(token)
        elif token is not None:
            cause = "`eos_token_id` is neither a token id nor a list of them"
            raise ConfigError(
                f"invalid model config {path}",
                cause,
                path=path,
                field="eos_token_id",
                found=declared,
                expected="a token id or a list of them",
            )
    return found
