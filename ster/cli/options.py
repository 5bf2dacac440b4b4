"""The flags that commands share, each written once, and how flags take their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from typer.core import TyperCommand, TyperGroup

from ster.cli.streams import say
from ster.errors import UsageError
from ster.runs.memory import parse_memory
from ster.text import quoted

TEXT = "ster.text"


def _remember_text(context: typer.Context, value: bool) -> bool:
    """Let ``--text`` count wherever on the line it stands."""
    context.meta[TEXT] = value or context.meta.get(TEXT, False)
    return bool(context.meta[TEXT])


def _check_chat_template(word: str) -> str:
    """Refuse a mode that is neither auto nor off."""
    if word not in ("auto", "off"):
        raise UsageError(
            f"unknown chat template mode {quoted(word)}; expected auto or off"
        )
    return word


def _check_memory(size: str | None) -> str | None:
    """Refuse what is no size of memory."""
    if size is not None:
        parse_memory(size)
    return size


Model = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="<DIR|ID>",
        help="A checkpoint directory, or the id of a model on the Hugging Face Hub.",
    ),
]
Revision = Annotated[
    str | None,
    typer.Option(
        "--revision",
        metavar="<REV>",
        help="Branch, tag or commit on the Hub, main unless given; of a directory it "
        "is recorded and selects nothing.",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="<DEVICE>",
        help="Where to compute: cpu, metal or cuda.",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        "--precision",
        metavar="<WIDTH>",
        help="Width of weights and residual stream: f32, f16 or bf16.",
    ),
]
ChatTemplate = Annotated[
    str,
    typer.Option(
        "--chat-template",
        metavar="<MODE>",
        callback=_check_chat_template,
        help="auto applies the model's own chat template where it has one; off encodes "
        "raw text.",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="<SIZE>",
        callback=_check_memory,
        help="Most memory that the run may take, such as 800M or 4G; three quarters of "
        "what is free unless given.",
    ),
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", help="Say on stderr how the run is planned."),
]
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
    """A command whose flags take no other flag as their value, and only one value."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Check the words of the line, then parse them."""
        valued = {name for param in self.params for name in param.opts if _takes(param)}
        seen: set[str] = set()
        for flag, value in _flags(args, valued):
            if flag in seen:
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
    """Yield each flag that takes a value with the word after it, ``""`` if attached."""
    words = iter(args)
    for word in words:
        if word == "--":
            return
        flag, attached, _ = word.partition("=")
        if flag in valued:
            yield flag, "" if attached else next(words, None)
