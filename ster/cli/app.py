"""The commands and what they are called."""

from __future__ import annotations

from typing import Annotated

import typer

from ster import __version__
from ster.cli.chat import chat
from ster.cli.completion import completion
from ster.cli.extract import extract
from ster.cli.generate import generate
from ster.cli.models import models
from ster.cli.options import Command, Group, Text
from ster.cli.pairs.app import pairs_app
from ster.cli.parity import parity
from ster.cli.toy import toy_model
from ster.cli.vector.app import vector_app

app = typer.Typer(
    cls=Group,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    """Print the version and leave."""
    if value:
        typer.echo(f"ster {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_print_version,
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
    text: Text = None,
) -> None:
    """Read and steer the residual stream of open-weight language models.

    Answers go to stdout; progress, notes and errors go to stderr.
    """


app.command(
    "extract",
    cls=Command,
    short_help="Write the residual streams of prompts to a document.",
    epilog="\b\nExample:\n"
    "  ster toy-model toy\n"
    "  ster extract --model toy --input prompts.json --output activations.json",
)(extract)
app.command(
    "generate",
    cls=Command,
    short_help="Answer prompts, steered by a vector or not.",
    epilog="\b\nExample:\n"
    "  ster generate --model toy --prompt 'describe the evening lake .' \\\n"
    "    --vector calm.json --strength 2",
)(generate)
app.command(
    "chat",
    cls=Command,
    short_help="Talk with a model, steered by a vector or not.",
    epilog="\b\nExample:\n"
    "  ster chat --model HuggingFaceTB/SmolLM2-135M-Instruct --vector calm.json",
)(chat)
app.command(
    "parity",
    cls=Command,
    short_help="Compare hidden states with those of another implementation.",
    epilog="\b\nExample:\n  ster parity --model toy --input reference.json",
)(parity)
app.command(
    "toy-model",
    cls=Command,
    short_help="Write a small checkpoint to try things with.",
    epilog="\b\nExample:\n  ster toy-model toy",
)(toy_model)
app.command(
    "models",
    cls=Command,
    short_help="List the families of models, and how each was checked.",
    epilog="\b\nExample:\n  ster models --text",
)(models)
app.command(
    "completion",
    cls=Command,
    short_help="Print what completes ster's words in a shell.",
    epilog='\b\nExample:\n  eval "$(ster completion bash)"',
)(completion)
app.add_typer(pairs_app, name="pairs")
app.add_typer(vector_app, name="vector")
