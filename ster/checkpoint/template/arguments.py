"""Arguments of a chat template beside the conversation, such as ``enable_thinking``.

Imports little: the command line checks its words with this.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from ster.errors import UsageError
from ster.text import quoted

# Variables that the conversation itself sets.
RESERVED = ("messages", "add_generation_prompt")


def parse_template_args(words: Iterable[str]) -> dict[str, object]:
    """Read words of the form ``NAME=VALUE``.

    A value is JSON (``false``, ``3``, ``["a"]``, ``null``, ``"no"``). One that is no
    JSON is a text.

    Raises:
        UsageError: A word has no ``=``, or a name is invalid or comes twice.
    """
    args: dict[str, object] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (equals and name.isidentifier()):
            sentence = f"invalid template argument {quoted(word)}; expected NAME=VALUE"
            raise UsageError(sentence, field="template_args", found=word)
        if name in args:
            sentence = f"template argument {quoted(name)} is given twice"
            raise UsageError(sentence, field="template_args", found=word)
        args[name] = _read_value(value)
    return check_template_args(args)


def check_template_args(args: Mapping[str, object]) -> dict[str, object]:
    """Return a copy that templates may be given.

    Raises:
        UsageError: A name is invalid, or belongs to the conversation or the tokenizer;
            or a value cannot be written as JSON.
    """
    return {_check_name(name): _check_value(name, args[name]) for name in args}


def refuse_reserved(args: Mapping[str, object], special_tokens: Iterable[str]) -> None:
    """Refuse arguments that have the name of a special token.

    Raises:
        UsageError: There is one.
    """
    for name in special_tokens:
        if name in args:
            raise _reserved(name)


def _read_value(text: str) -> object:
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text
    return value


def _refuse_constant(name: str) -> object:
    raise ValueError(name)  # NaN and Infinity are no JSON


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not name.isidentifier():
        shown = quoted(name) if isinstance(name, str) else repr(name)
        sentence = f"template argument {shown} is no name that a template can use"
        raise UsageError(sentence, field="template_args", found=name)
    if name in RESERVED or name.endswith("_token"):
        raise _reserved(name)
    return name


def _reserved(name: str) -> UsageError:
    return UsageError(
        f"template argument {quoted(name)} cannot be set",
        "the conversation and the tokenizer say it",
        field="template_args",
        found=name,
    )


def _check_value(name: str, value: object) -> object:
    try:
        copy: object = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"template argument {quoted(name)} has a value that is no JSON",
            str(error),
            field="template_args",
            found=type(value).__name__,
        ) from error
    return copy
