"""``ster extract``: prompts in, a document of activations out."""

from __future__ import annotations

from typing import Annotated

import typer

from ster.cli.answer import render_beside
from ster.cli.inputs import FORMATS, input_file, read_prompts, take_output, take_prompts
from ster.cli.model import ModelFlags, check_output, with_model_flags
from ster.cli.options import Layers, Text
from ster.errors import UsageError

Input = Annotated[
    str | None,
    typer.Option("--input", metavar="<FILE>", help=f"The prompts: {FORMATS}."),
]
Prompt = Annotated[
    list[str] | None,
    typer.Option(
        "--prompt",
        metavar="<TEXT>",
        callback=take_prompts,
        help="A prompt, instead of --input; may be given several times.",
    ),
]
Output = Annotated[
    str,
    typer.Option(
        "--output",
        metavar="<FILE>",
        callback=take_output,
        help="Where the activations go, - for standard output; an old file is replaced "
        "only when the new one is whole.",
    ),
]


@with_model_flags
def extract(
    *,
    input_path: Input = None,
    prompt: Prompt = None,
    output_path: Output,
    flags: ModelFlags,
    layers: Layers = "all",
    text: Text = None,
) -> str:
    """Write the residual stream at the last token of every prompt, as JSON.

    It is read after each chosen block, 0 being the first, and never after the final
    norm. Prints the path of the document.
    """
    if (input_path is None) == (not prompt):
        raise UsageError("give either --input or --prompt")
    flags.check_device()
    check_output(output_path, input_file(input_path))
    prompts = read_prompts(input_path, prompt)
    with flags.open(layers, output_path) as runtime:
        runtime.write_activations(prompts, output_path, layers=layers)
    return render_beside(output_path, output_path, text=text)
