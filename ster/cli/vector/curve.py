"""``ster vector curve``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from ster.cli.answer import show
from ster.cli.model import ModelFlags, with_model_flags
from ster.cli.options import Layers, SideRole, SideTokens, Text
from ster.cli.pairs.options import Label, PositiveValue, check_label, read_pairs
from ster.cli.tables.learning_curves import draw_curve
from ster.cli.vector.options import Holdout, Method, Pairs
from ster.errors import UsageError
from ster.text import quoted, trim


def parse_sizes(words: str) -> tuple[int, ...]:
    """Read a comma list of numbers of pairs.

    Raises:
        UsageError: There is none, or one is no whole number above zero.
    """
    segments = [segment for part in words.split(",") if (segment := trim(part))]
    for segment in segments:
        digits = segment.isascii() and segment.isdigit() and len(segment) <= 18
        if not digits or int(segment) < 1:
            raise UsageError(
                f"invalid size {quoted(segment)}; expected numbers of pairs, such as "
                "5,10,20",
                field="--sizes",
                found=segment,
            )
    if not segments:
        raise UsageError("there is no size to fit on", field="--sizes", found=words)
    return tuple(map(int, segments))


def _check_sizes(words: str) -> str:
    """Refuse what is no list of sizes."""
    parse_sizes(words)
    return words


Sizes = Annotated[
    str,
    typer.Option(
        "--sizes",
        metavar="<N,N,...>",
        callback=_check_sizes,
        help="How many pairs to fit on, each time the first of the file, such as "
        "5,10,20.",
    ),
]


@with_model_flags
def curve(
    *,
    pairs_path: Pairs,
    method: Method,
    holdout: Holdout,
    sizes: Sizes,
    flags: ModelFlags,
    label: Label = None,
    positive: PositiveValue = None,
    layers: Layers = "all",
    tokens: SideTokens = "last",
    role: SideRole = "user",
    text: Text = None,
) -> Iterator[str]:
    """Show how many pairs a direction needs.

    Fits on more and more pairs and measures each time on the same held-out ones. Prints
    how every size did at every layer, and the smallest that is enough. Writes nothing.
    """
    # Late, so that `ster --help` does not wait for the array libraries.
    from ster.workflows.choosing import check_holdout
    from ster.workflows.sizing import check_split

    check_label(label, positive)
    flags.check_device()
    check_holdout(holdout)
    pairs = read_pairs(pairs_path, label, positive)
    numbers = parse_sizes(sizes)
    check_split(len(pairs), holdout, numbers)
    with flags.open(layers) as runtime:
        found = runtime.curve(
            pairs,
            sizes=numbers,
            method=method,
            layers=layers,
            holdout=holdout,
            tokens=tokens,
            role=role,
        )
    return show(found.document, text=text, table=partial(draw_curve, found))
