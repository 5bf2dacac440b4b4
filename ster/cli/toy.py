"""``ster toy-model``: a small checkpoint to try things with."""

from __future__ import annotations

from typing import Annotated

import typer

from ster.cli.answer import render
from ster.cli.options import Text

Directory = Annotated[
    str,
    typer.Argument(
        metavar="DIR", help="Where the checkpoint goes; made when it is not there."
    ),
]


def toy_model(*, directory: Directory, text: Text = None) -> str:
    """Write a small Llama checkpoint with random weights, the same ones every time.

    Prints the directory.
    """
    from ster.toy import write_toy_checkpoint

    write_toy_checkpoint(directory)
    return render(directory, text=text)
