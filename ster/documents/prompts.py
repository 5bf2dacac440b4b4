"""The prompt set: ``{"prompts": ["...", ...]}``, other keys ignored."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ster.documents.strict_json import JsonError, read_document
from ster.errors import PromptError
from ster.text import trim


def read_prompt_set(path: str | os.PathLike[str]) -> list[str]:
    """Read the prompts of a file, in its order, as they stand there.

    Raises:
        DocumentError: The file cannot be read or is no prompt set.
        PromptError: It has no prompts, or an empty one.
    """
    prompts = read_document(
        path, _parse, unread="failed to read", invalid="invalid prompt JSON"
    )
    return check_prompts(prompts)


def check_prompts(prompts: Iterable[str]) -> list[str]:
    """Refuse prompts that no activation can be read for.

    Raises:
        PromptError: There are none, or one is no string, blank or no Unicode text.
    """
    if isinstance(prompts, str):
        raise PromptError("prompts must be a list of strings, not one string")
    checked = list(prompts)
    if not checked:
        raise PromptError("prompt set contains no prompts")
    for prompt in checked:
        _check_prompt(prompt)
    return checked


def _check_prompt(prompt: object) -> None:
    if not isinstance(prompt, str):
        raise PromptError(f"a prompt must be a string, not {type(prompt).__name__}")
    if not trim(prompt):
        raise PromptError("prompt must not be empty")
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError as error:
        where = f"lone surrogate at character {error.start}"
        raise PromptError(f"failed to tokenize prompt: {where}") from error


def _parse(document: object) -> list[str]:
    if not isinstance(document, dict):
        raise JsonError("expected an object with the key `prompts`")
    if "prompts" not in document:
        raise JsonError("missing field `prompts`")
    prompts = document["prompts"]
    if not isinstance(prompts, list):
        raise JsonError("`prompts` is no list of strings")
    for index, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            raise JsonError(f"`prompts[{index}]` is no string")
    return prompts
