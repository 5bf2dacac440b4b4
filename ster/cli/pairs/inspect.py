"""``ster pairs inspect``: what a pair set is like."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from ster.cli.answer import show
from ster.cli.model import ModelFlags
from ster.cli.options import Text
from ster.cli.pairs.options import (
    PAIR_FORMATS,
    Label,
    PositiveValue,
    check_label,
    read_pairs,
)
from ster.cli.streams import say
from ster.cli.tables.pairs import draw_inspection
from ster.errors import UsageError
from ster.text import one_line

File = Annotated[
    str, typer.Argument(metavar="FILE", help=f"The pairs: {PAIR_FORMATS}.")
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="<DIR|ID>",
        help="Count in this model's tokens, as training encodes the sides; without one "
        "lengths are in characters, and words are compared.",
    ),
]
Revision = Annotated[
    str | None,
    typer.Option("--revision", metavar="<REV>", help="Of a model on the Hub."),
]


def inspect(
    *,
    path: File,
    model: Model = None,
    revision: Revision = None,
    label: Label = None,
    positive: PositiveValue = None,
    text: Text = None,
) -> Iterator[str]:
    """Show what pairs are like, and what trivially tells their sides apart.

    Counts repeats and lengths, says where sides first differ, and how often a rule as
    simple as the longer side or the last word knows which is positive: a direction that
    does no better may have found that alone.
    """
    check_label(label, positive)
    if revision is not None and model is None:
        raise UsageError("--revision needs --model", field="--revision")
    pairs = read_pairs(path, label, positive)
    if model is None:
        found = pairs.inspect()
    else:
        flags = ModelFlags(model=model, revision=revision, sources={})
        with flags.open() as runtime:
            found = runtime.inspect(pairs)
    for warning in found.warnings:
        say(f"warning: {one_line(warning)}\n")
    return show(found.document, text=text, table=partial(draw_inspection, found))
