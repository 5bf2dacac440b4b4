"""``ster vector train``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ster.cli.answer import show_beside
from ster.cli.inputs import input_file
from ster.cli.model import ModelFlags, check_output, with_model_flags
from ster.cli.options import Layers, SideRole, SideTokens, Text
from ster.cli.pairs.options import Label, PositiveValue, check_label, read_pairs
from ster.cli.tables.vectors import draw_vector
from ster.cli.vector.options import Method, Output, Pairs


@with_model_flags
def train(
    *,
    pairs_path: Pairs,
    output_path: Output,
    flags: ModelFlags,
    label: Label = None,
    positive: PositiveValue = None,
    layers: Layers = "all",
    method: Method = "caa",
    tokens: SideTokens = "last",
    role: SideRole = "user",
    text: Text = None,
) -> Iterator[str]:
    """Fit a direction at every chosen layer.

    Writes the directions as a steering artifact, and prints what it holds, with
    accuracy and margin on the pairs that they were fitted on.
    """
    # Late, so that `ster --help` does not wait for the array libraries.
    from ster.documents.steering import check_suffix

    check_label(label, positive)
    flags.check_device()
    check_output(output_path, input_file(pairs_path))
    check_suffix(output_path)
    pairs = read_pairs(pairs_path, label, positive)
    with flags.open(layers, output_path) as runtime:
        vector = runtime.train(
            pairs,
            method=method,
            layers=layers,
            tokens=tokens,
            role=role,
            output=output_path,
        )
    summary = {"artifact": vector.summary, "chat_template": runtime.chat_template}
    table = partial(draw_vector, vector)
    return show_beside(output_path, summary, text=text, table=table)
