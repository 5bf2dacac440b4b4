"""``ster vector optimize``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ster.cli.answer import show_beside
from ster.cli.inputs import input_file
from ster.cli.model import ModelFlags, check_output, with_model_flags
from ster.cli.options import Layers, Role, Text, TokensOption
from ster.cli.pairs.options import Label, PositiveValue, check_label, read_pairs
from ster.cli.tables.selections import draw_selection
from ster.cli.vector.options import Holdout, Output, Pairs


@with_model_flags
def optimize(
    *,
    pairs_path: Pairs,
    output_path: Output,
    flags: ModelFlags,
    label: Label = None,
    positive: PositiveValue = None,
    layers: Layers = "all",
    holdout: Holdout = 0.2,
    tokens: TokensOption = "last",
    role: Role = "user",
    text: Text = None,
) -> Iterator[str]:
    """Choose method and layer on held-out pairs.

    Fits the best candidate again on all pairs, writes it as a steering artifact, and
    prints what it holds and how every candidate did, beside random directions.
    """
    from ster.documents.steering import check_suffix
    from ster.workflows.choosing import check_holdout, split_pairs

    check_label(label, positive)
    flags.check_device()
    check_holdout(holdout)
    check_output(output_path, input_file(pairs_path))
    check_suffix(output_path)
    pairs = read_pairs(pairs_path, label, positive)
    split_pairs(len(pairs), holdout)
    with flags.open(layers, output_path) as runtime:
        selection = runtime.optimize(
            pairs,
            layers=layers,
            holdout=holdout,
            tokens=tokens,
            role=role,
            output=output_path,
        )
    artifact = selection.vector.summary
    summary = {"artifact": artifact, "chat_template": runtime.chat_template}
    report = {**summary, "selection": selection.document}
    table = partial(draw_selection, selection)
    return show_beside(output_path, report, text=text, table=table)
