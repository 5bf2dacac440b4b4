"""Prompts that are lists of texts, and what is refused of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set, Sized
from typing import Any, TypeVar

from ster.errors import PromptError
from ster.text import counted, trim

Text = TypeVar("Text", str, str | None)
_NO_ORDER = "a set has no order, and results stand in the order of the list"


def check_prompts(prompts: Iterable[str]) -> list[str]:
    """Refuse prompts that no activation can be read for.

    Raises:
        PromptError: There are none; one is no string, blank or no Unicode text; or they
            are neither a list nor another ordered iterable.
    """
    checked = take_list(prompts, "prompts")
    if not checked:
        raise PromptError("prompt set contains no prompts", field="prompts")
    for number, prompt in enumerate(checked, start=1):
        _check_prompt(prompt, number, of=len(checked))
    return checked


def check_asked(
    prompts: Iterable[str | None], field: str = "prompts"
) -> list[str | None]:
    """Refuse what nothing can answer; None stands for no prompt.

    Args:
        prompts: What was given.
        field: The argument that it was given for.

    Raises:
        PromptError: As for ``check_prompts``, but there may be no prompts.
    """
    asked = take_list(prompts, field)
    what = "a prompt" if field == "prompts" else field
    for number, prompt in enumerate(asked, start=1):
        if prompt is not None:
            _check_prompt(prompt, number, of=len(asked), what=what)
    return asked


def check_asked_of(texts: Sized, asked: Iterable[str | None]) -> list[str | None]:
    """Refuse what texts do not answer one by one.

    Raises:
        PromptError: As for ``check_asked``, or there are more or fewer.
    """
    checked = check_asked(asked, "asked")
    if len(checked) != len(texts):
        given = f"asked has {counted(len(checked), 'value')}"
        raise PromptError(
            f"{given} for {counted(len(texts), 'prompt')}",
            "one for each, None where a text answers nothing",
            field="asked",
            found=len(checked),
            expected=len(texts),
        )
    return checked


def take_list(texts: Iterable[Text], name: str) -> list[Text]:
    """Take a list or another ordered iterable of texts.

    Args:
        texts: What a notebook handed over.
        name: What the sentence calls the argument.

    Raises:
        PromptError: It is neither. A string, a mapping or a table is refused too: it
            would yield its letters, its keys or the names of its columns.
    """
    given: Any = texts
    kind = type(given).__name__
    if isinstance(given, str):
        raise _no_list(name, "one string", given)
    if isinstance(given, bytes | bytearray | memoryview):
        raise _no_list(name, kind, given)
    if isinstance(given, Mapping):
        way = f'of a document its list will do, as in document["{name}"]'
        raise _no_list(name, kind, given, way)
    if isinstance(given, Set):
        raise _no_list(name, kind, given, f"{_NO_ORDER}; sorted(...) makes one")
    if getattr(given, "ndim", 1) != 1:
        found = f"{kind} of {given.ndim} dimensions"
        raise _no_list(name, found, given, "one column of a table will do")
    try:
        return list(given)
    except TypeError:
        raise _no_list(name, kind, given) from None


def check_text(text: str, name: str, number: int | None = None) -> None:
    """Refuse what is no Unicode text.

    Args:
        text: What was given as a text.
        name: What the sentence calls it.
        number: Which of several it is, counted from 1.

    Raises:
        PromptError: It is no string, or holds half of a surrogate pair.
    """
    given: object = text
    if not isinstance(given, str):
        raise PromptError(
            f"{name} must be a string, not {type(given).__name__}",
            field=name.split()[-1],
            found=given,
            expected="a string",
            prompt=number,
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        where = f"lone surrogate at character {error.start}"
        raise PromptError(
            f"failed to tokenize prompt: {where}", found=text, prompt=number
        ) from error


def _check_prompt(prompt: str, number: int, *, of: int, what: str = "a prompt") -> None:
    check_text(prompt, what, number)
    if not trim(prompt):
        name = what.removeprefix("a ")
        which = [f"prompt {number} is blank"] if of > 1 else []
        sentence = f"{name} must not be empty"
        raise PromptError(sentence, *which, found=prompt, prompt=number)


def _no_list(name: str, found: str, given: object, *ways: str) -> PromptError:
    return PromptError(
        f"{name} must be a list of strings, not {found}",
        *ways,
        field=name,
        found=given,
        expected="a list of strings",
    )
