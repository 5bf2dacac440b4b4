"""The flags that commands share, each written once, and how flags take their values."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated

import typer
from typer.core import TyperCommand, TyperGroup

from ster.cli.streams import say
from ster.errors import PromptError

TEXT = "ster.text"


def _remember_text(context: typer.Context, value: bool) -> bool:
    """Let ``--text`` count wherever on the line it stands."""
    context.meta[TEXT] = value or context.meta.get(TEXT, False)
    return bool(context.meta[TEXT])


def take_text(flag: str, word: str) -> str:
    """Take an argument as text: UTF-8, whatever the locale makes of its bytes.

    Raises:
        PromptError: Its bytes are no text.
    """
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        pass
    else:
        return word
    try:
        return os.fsencode(word).decode("utf-8")
    except UnicodeError as error:
        sentence = f"failed to tokenize prompt: the bytes of {flag} are not UTF-8"
        raise PromptError(sentence, field=flag, found=word) from error


Layers = Annotated[
    str,
    typer.Option(
        "--layers",
        metavar="<LAYERS>",
        help="all, or block indices and half-open ranges such as 0,8..12.",
    ),
]
Text = Annotated[
    bool,
    typer.Option(
        "--text",
        callback=_remember_text,
        help="Print a JSON answer as 'path: value' lines.",
    ),
]


class Command(TyperCommand):
    """A command that refuses a flag given twice, or in the place of a value."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Check the words of the line, then parse them."""
        valued = {name for param in self.params for name in param.opts if _takes(param)}
        repeatable = {
            name
            for param in self.params
            for name in param.opts
            if getattr(param, "multiple", False)
        }
        seen: set[str] = set()
        for flag, value in _flags(args, valued):
            if flag in seen - repeatable:
                ctx.fail(f"Option '{flag}' is given more than once.")
            if value is None:
                ctx.fail(f"Option '{flag}' needs a value.")
            if value.startswith("--"):
                ctx.fail(f"Option '{flag}' needs a value, but '{value}' follows it.")
            seen.add(flag)
        return super().parse_args(ctx, args)


class Group(TyperGroup):
    """A group of commands that prints its help, as an error, when given no words."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Show the help to those who gave nothing to parse."""
        if not args:
            say(f"{ctx.get_help()}\n")
            ctx.exit(2)
        return super().parse_args(ctx, args)


def _takes(param: object) -> bool:
    """Tell whether a parameter is a flag with a value."""
    return getattr(param, "param_type_name", "") == "option" and not getattr(
        param, "is_flag", False
    )


def _flags(args: list[str], valued: set[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each flag with a value, and the next word; ``""`` after ``--a=b``."""
    words = iter(args)
    for word in words:
        if word == "--":
            return
        flag, attached, _ = word.partition("=")
        if flag in valued:
            yield flag, "" if attached else next(words, None)
