"""``ster extract``: prompts in, a document of activations out."""

from __future__ import annotations

from typing import Annotated

import typer

from ster.cli.answer import render_beside
from ster.cli.model import ModelFlags, check_output, with_model_flags
from ster.cli.options import Layers, Text

Input = Annotated[
    str,
    typer.Option(
        "--input",
        metavar="<FILE>",
        help='The prompts: a JSON document {"prompts": ["...", ...]}.',
    ),
]
Output = Annotated[
    str,
    typer.Option(
        "--output",
        metavar="<FILE>",
        help="Where the activations go; an old file is replaced only when the new one "
        "is whole.",
    ),
]


@with_model_flags
def extract(
    *,
    input_path: Input,
    output_path: Output,
    flags: ModelFlags,
    layers: Layers = "all",
    text: Text = None,
) -> str:
    """Write the residual stream at the last token of every prompt, as JSON.

    It is read after each chosen block, 0 being the first, and never after the final
    norm. Prints the path of the document.
    """
    # Late, so that `ster --help` does not wait for the array libraries.
    from ster.documents.prompts import read_prompt_set

    flags.check_device()
    check_output(output_path, [input_path])
    prompts = read_prompt_set(input_path)
    with flags.open(layers, output_path) as runtime:
        runtime.write_activations(prompts, output_path, layers=layers)
    return render_beside(output_path, output_path, text=text)
