"""``ster vector``: directions from contrastive pairs, and what they are worth."""

from __future__ import annotations

import typer

from ster.cli.options import Command, Group, Text
from ster.cli.vector.ablate import ablate
from ster.cli.vector.compare import compare
from ster.cli.vector.curve import curve
from ster.cli.vector.evaluate import evaluate
from ster.cli.vector.export import export
from ster.cli.vector.inspect import inspect
from ster.cli.vector.optimize import optimize
from ster.cli.vector.project import project
from ster.cli.vector.train import train

vector_app = typer.Typer(cls=Group, rich_markup_mode=None)


@vector_app.callback()
def vector(*, text: Text = None) -> None:
    """Fit directions to contrastive pairs, choose and measure them."""


vector_app.command(
    "train",
    cls=Command,
    epilog="\b\nExample:\n"
    "  ster vector train --model toy --pairs pairs.json --output calm.json",
)(train)
vector_app.command(
    "optimize",
    cls=Command,
    epilog="\b\nExample:\n"
    "  ster vector optimize --model toy --pairs pairs.json --output calm.json",
)(optimize)
vector_app.command(
    "evaluate",
    cls=Command,
    epilog="\b\nExample:\n"
    "  ster vector evaluate --model toy --pairs pairs.json --vector calm.json",
)(evaluate)
vector_app.command(
    "inspect",
    cls=Command,
    epilog="\b\nExample:\n  ster vector inspect calm.json",
)(inspect)
vector_app.command(
    "compare",
    cls=Command,
    epilog="\b\nExample:\n"
    "  ster vector compare calm.json happy.json angry.json --clusters 2",
)(compare)
vector_app.command(
    "project",
    cls=Command,
    epilog="\b\nExample:\n"
    "  ster vector project --model toy --pairs pairs.json --vector calm.json \\\n"
    "    --layer 3 --strength 0.5n --components 2",
)(project)
vector_app.command(
    "curve",
    cls=Command,
    epilog="\b\nExample:\n"
    "  ster vector curve --model toy --pairs pairs.json --method caa \\\n"
    "    --holdout 0.25 --sizes 1,2,4",
)(curve)
vector_app.command(
    "export",
    cls=Command,
    epilog="\b\nExample:\n"
    "  ster vector export calm.json --output calm.gguf --layers 1..30",
)(export)
vector_app.command(
    "ablate",
    cls=Command,
    epilog="\b\nExample:\n"
    "  ster vector ablate --model toy --vector calm.json --output toy-without-calm",
)(ablate)
