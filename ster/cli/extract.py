"""``ster extract``: prompts in, a document of activations out."""

from __future__ import annotations

from typing import Annotated

import typer

from ster.cli.answer import render
from ster.cli.model import ModelFlags, refuse_same_file
from ster.cli.options import (
    ChatTemplate,
    Device,
    Layers,
    Memory,
    Model,
    Precision,
    Revision,
    Text,
    Verbose,
)

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


def extract(
    *,
    model: Model,
    input_path: Input,
    output_path: Output,
    revision: Revision = None,
    device: Device = "cpu",
    precision: Precision = "f32",
    chat_template: ChatTemplate = "auto",
    layers: Layers = "all",
    memory: Memory = None,
    verbose: Verbose = False,
    text: Text = False,
) -> str:
    """Write the residual stream at the last token of every prompt, as JSON.

    It is read after each chosen block, 0 being the first, and never after the final
    norm. Prints the path of the document.
    """
    # Late, so that `ster --help` does not wait for the array libraries.
    from ster.documents.prompts import read_prompt_set

    flags = ModelFlags(
        model, revision, device, precision, chat_template, memory, verbose
    )
    flags.check_device()
    refuse_same_file([input_path], output_path)
    prompts = read_prompt_set(input_path)
    with flags.open(layers, output_path) as runtime:
        runtime.write_activations(prompts, output_path, layers=layers)
    return render(output_path, text=text)
