"""The commands on contrastive pairs and what they are called."""

from __future__ import annotations

import typer

from ster.cli.options import Command, Group, Text
from ster.cli.pairs.inspect import inspect
from ster.cli.pairs.make import make

pairs_app = typer.Typer(cls=Group, rich_markup_mode=None)


@pairs_app.callback()
def pairs(*, text: Text = None) -> None:
    """Make contrastive pairs, and see what they are like."""


pairs_app.command(
    "make",
    cls=Command,
    epilog="\b\nExample:\n"
    "  ster pairs make --prompts prompts.json --output happy.json \\\n"
    "    --positive 'Act as if you are extremely happy.' \\\n"
    "    --negative 'Act as if you are extremely sad.'",
)(make)
pairs_app.command(
    "inspect",
    cls=Command,
    epilog="\b\nExample:\n  ster pairs inspect pairs.json --model toy",
)(inspect)
