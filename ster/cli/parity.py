"""``ster parity``: hidden states beside those of another implementation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from ster.cli.answer import show
from ster.cli.model import ModelFlags, with_some_model_flags
from ster.cli.options import Text

Input = Annotated[
    str,
    typer.Option(
        "--input",
        metavar="<FILE>",
        help="The reference: token ids and hidden states by layer and position, as "
        ".json, .safetensors or .npz.",
    ),
]


@with_some_model_flags("model", "revision", "device", "precision", "memory", "verbose")
def parity(*, input_path: Input, flags: ModelFlags, text: Text = None) -> Iterator[str]:
    """Compare hidden states with those of another implementation.

    Prints for each record and layer how far they are apart: what each block hands on,
    before the final norm, at every position of the reference. Prompts are encoded as
    raw text.
    """
    # Late, so that `ster --help` does not wait for the array libraries.
    from ster.cli.tables.parity import draw_parity
    from ster.documents.reference_states import read_reference

    raw = replace(flags, chat_template="off")
    raw.check_device()
    reference = read_reference(input_path)
    with raw.open() as runtime:
        found = runtime.parity(reference)
    return show(found.document, text=text, table=partial(draw_parity, found))
