"""``ster extract``: prompts in, a document of activations out."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import Annotated

import typer

from ster.cli.answer import render
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
from ster.cli.progress import open_reporter
from ster.errors import OutputError
from ster.memory import parse_memory

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
    from ster.checkpoint.resolve import local_files
    from ster.documents.prompts import read_prompt_set
    from ster.runtime import check_device, open_runtime

    check_device(device, precision)
    refuse_same_file([input_path], output_path)
    prompts = read_prompt_set(input_path)
    with open_reporter() as reporter:
        runtime = open_runtime(
            model,
            device=device,
            precision=precision,
            chat_template=chat_template,
            revision=revision,
            reporter=reporter,
            layers=layers,
            memory=None if memory is None else parse_memory(memory),
            verbose=verbose,
        )
        refuse_same_file(local_files(model), output_path)
        runtime.write_activations(prompts, output_path, layers=layers)
    return render(output_path, text=text)


def refuse_same_file(input_paths: Iterable[str], output_path: str) -> None:
    """Refuse to write over a file that the run reads.

    Devices are not meant: a terminal is often both.
    """
    for path in input_paths:
        try:
            source, target = os.stat(path), os.stat(output_path)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(source.st_mode) and os.path.samestat(source, target):
            raise OutputError(
                f"failed to write {output_path}", "it is this run's input"
            )
