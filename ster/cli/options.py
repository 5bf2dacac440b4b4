"""The flags that commands share, each written once, and how flags take their values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer
from typer._click.core import Context, Parameter
from typer._click.exceptions import MissingParameter
from typer._click.formatting import HelpFormatter
from typer.core import TyperCommand, TyperGroup

from ster.cli.panels import WATCHED, open_formatter, write_panels
from ster.cli.streams import say
from ster.errors import PromptError, check_word
from ster.token_choice import choose_one_row, parse_tokens

TEXT = "ster.text"
# One letter for the flags that people type most. No command has two with the same.
LETTERS = {
    "--model": "-m",
    "--input": "-i",
    "--output": "-o",
    "--prompt": "-p",
    "--pairs": "-p",
    "--vector": "-v",
    "--device": "-d",
}


def _remember_text(context: typer.Context, value: bool | None) -> bool | None:
    """Let ``--text`` and ``--json`` count wherever on the line they stand."""
    chosen = context.meta.get(TEXT) if value is None else value
    context.meta[TEXT] = chosen
    return chosen


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
        sentence = f"the bytes of {flag} are not UTF-8"
        if flag == "--prompt":
            sentence = f"failed to tokenize prompt: {sentence}"
        raise PromptError(sentence, field=flag, found=word) from error


def offer(*words: str) -> Callable[[str], list[str]]:
    """Make what completes a flag's value from the words that it knows."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def _check_tokens(words: str | None) -> str | None:
    """Refuse what is no choice of tokens."""
    if words is not None:
        parse_tokens(words)
    return words


def _check_side_tokens(words: str | None) -> str | None:
    """Refuse what can be several rows of a side, before a model is looked for."""
    if words is not None:
        choose_one_row(words)
    return words


def _check_role(word: str | None) -> str | None:
    """Refuse what is no role."""
    return None if word is None else check_word("role", word, ("user", "assistant"))


Layers = Annotated[
    str,
    typer.Option(
        "--layers",
        metavar="<LAYERS>",
        help="all, or block indices and half-open ranges such as 0,8..12.",
    ),
]
TokensOption = Annotated[
    str,
    typer.Option(
        "--tokens",
        metavar="<TOKENS>",
        callback=_check_tokens,
        help="Which tokens: last, the encoded prompt's; text, the last of the text "
        "itself inside a template; all; mean, over the text's own tokens; or indices "
        "and half-open ranges such as 0,-3.., negative ones counted from the end.",
    ),
]
Role = Annotated[
    str,
    typer.Option(
        "--role",
        metavar="<ROLE>",
        callback=_check_role,
        help="Whose turn a prompt is under a template: user or assistant.",
    ),
]
SideTokens = Annotated[
    str,
    typer.Option(
        "--tokens",
        metavar="<TOKENS>",
        callback=_check_side_tokens,
        help="Which token of each side is read: last, the encoded text's; text, the "
        "last of the side itself inside a template; mean, over the side's own tokens; "
        "or an index, a negative one counted from the end.",
    ),
]
SideRole = Annotated[
    str,
    typer.Option(
        "--role",
        metavar="<ROLE>",
        callback=_check_role,
        help="Whose turn a side without a prompt is under a template: user, or "
        "assistant, which with --tokens mean suits what a model is to say.",
    ),
]
TrainedTokens = Annotated[
    str | None,
    typer.Option(
        "--tokens",
        metavar="<TOKENS>",
        callback=_check_side_tokens,
        help="Which token of each side is read: last, text, mean or an index; what "
        "the vector was fitted to unless given.",
    ),
]
TrainedRole = Annotated[
    str | None,
    typer.Option(
        "--role",
        metavar="<ROLE>",
        callback=_check_role,
        help="Whose turn a side without a prompt is under a template: user or "
        "assistant; that which the vector was fitted to unless given.",
    ),
]
Text = Annotated[
    bool | None,
    typer.Option(
        "--text/--json",
        callback=_remember_text,
        help="Print an answer as 'path: value' lines, or as JSON. Unless given, a "
        "terminal gets a table and a pipe JSON.",
    ),
]


class Command(TyperCommand):
    """A command that refuses a flag given twice, or in the place of a value."""

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)
        for param in self.params:
            param.opts += [LETTERS[flag] for flag in param.opts if flag in LETTERS]

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Check the words of the line, then parse them."""
        valued = {name: param for param in self.params for name in _flags_of(param)}
        seen: set[str] = set()
        for flag, value in _flags(args, valued):
            if ctx.resilient_parsing:
                break  # a line that is only begun is completed, not refused
            name = valued[flag].opts[0]
            if name in seen and not getattr(valued[flag], "multiple", False):
                ctx.fail(f"Option '{flag}' is given more than once.")
            if value is None:
                ctx.fail(f"Option '{flag}' needs a value.")
            if value.startswith("--"):
                ctx.fail(f"Option '{flag}' needs a value, but '{value}' follows it.")
            seen.add(name)
        try:
            return super().parse_args(ctx, args)
        except MissingParameter as error:  # its long name says which it is
            if error.param is not None and error.param.param_type_name == "option":
                error.param_hint = f"'{error.param.opts[0]}'"
            raise

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the flags under headings."""
        write_panels(self.get_params(ctx), ctx, formatter)

    def get_help(self, ctx: Context) -> str:
        """Lay out the help page."""
        return help_page(self, ctx)


class Group(TyperGroup):
    """A group of commands that prints its help, as an error, when given no words."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Show the help to those who gave nothing to parse."""
        if not args and not ctx.resilient_parsing:
            say(f"{super().get_help(ctx)}\n")
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def get_help(self, ctx: Context) -> str:
        """Lay out the help page."""
        return help_page(self, ctx)

    def get_short_help_str(self, limit: int = 45) -> str:
        """Give the first sentence whole; a narrow terminal breaks it into lines."""
        return super().get_short_help_str(max(limit, 200))


def help_page(command: TyperCommand | TyperGroup, ctx: Context) -> str:
    """Lay out a help page, for a terminal in boxes."""
    found = ctx.find_root().obj
    watched = isinstance(found, dict) and bool(found.get(WATCHED))
    formatter = open_formatter(watched=watched)
    command.format_help(ctx, formatter)
    return formatter.getvalue().rstrip("\n")


def _flags_of(param: Parameter) -> list[str]:
    """List the names of a parameter that is a flag with a value."""
    is_flag = getattr(param, "is_flag", False)
    return [] if param.param_type_name != "option" or is_flag else [*param.opts]


def _flags(
    args: list[str], valued: Mapping[str, object]
) -> Iterator[tuple[str, str | None]]:
    """Yield each flag with a value, and the next word; ``""`` after ``--a=b``."""
    words = iter(args)
    for word in words:
        if word == "--":
            return
        flag, attached, _ = word.partition("=")
        if not word.startswith("--") and word[:2] in valued:
            flag, attached = word[:2], word[2:]
        if flag in valued:
            yield flag, "" if attached else next(words, None)
