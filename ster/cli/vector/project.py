"""``ster vector project``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from ster.cli.answer import show
from ster.cli.applying import ApplyingFlags, with_applying_flags
from ster.cli.model import ModelFlags, with_model_flags
from ster.cli.options import Text, TrainedRole, TrainedTokens
from ster.cli.pairs.options import Label, PositiveValue, check_label, read_pairs
from ster.cli.steering import check_strength, parse_one_strength, take_whole
from ster.cli.tables.projections import draw_projection
from ster.cli.vector.options import Pairs
from ster.errors import UsageError


def _check_components(number: int) -> int:
    """Refuse what is no number of components."""
    if number < 1:
        raise UsageError(
            f"--components must be at least 1, not {number}",
            field="--components",
            found=number,
        )
    return number


Vector = Annotated[
    str,
    typer.Option(
        "--vector",
        metavar="<FILE>",
        callback=take_whole("project", "--strength says how much of it"),
        help="The steering artifact that is applied to the residual stream.",
    ),
]
ReadLayer = Annotated[
    int,
    typer.Option(
        "--layer",
        metavar="<LAYER>",
        help="The block after which rows are read, before the vector's own direction "
        "of that layer is applied; so one above the vector's first.",
    ),
]
StrengthOption = Annotated[
    str,
    typer.Option(
        "--strength",
        metavar="<S>",
        callback=check_strength,
        help="How much of the vector: a number, or 0.05n, so many times each "
        "layer's own mean residual norm.",
    ),
]
ComponentsOption = Annotated[
    int,
    typer.Option(
        "--components",
        metavar="<N>",
        callback=_check_components,
        help="Principal components of the unsteered rows to place them on; fewer where "
        "the rows span fewer.",
    ),
]


@with_model_flags
@with_applying_flags
def project(
    *,
    pairs_path: Pairs,
    vector_path: Vector,
    layer: ReadLayer,
    strength: StrengthOption,
    applied: ApplyingFlags,
    components: ComponentsOption,
    flags: ModelFlags,
    label: Label = None,
    positive: PositiveValue = None,
    tokens: TrainedTokens = None,
    role: TrainedRole = None,
    text: Text = None,
) -> Iterator[str]:
    """Show where a vector moves the sides of pairs.

    Reads each side with and without it, and prints the rows on the principal components
    of those without, how far they moved along the direction, and whether the negative
    sides came nearer to the positive ones. Writes nothing.
    """
    # Late, so that `ster --help` does not wait for the array libraries.
    from ster.vectors.interventions import Intervention
    from ster.vectors.steering import SteeringVector

    check_label(label, positive)
    amount = parse_one_strength(strength)
    applying = applied.take([amount])
    flags.check_device()
    pairs = read_pairs(pairs_path, label, positive)
    vector = SteeringVector.load(vector_path)
    steer = Intervention.applied(vector, amount, applying)
    with flags.open(str(layer)) as runtime:
        found = runtime.project(
            pairs,
            steer,
            layer=layer,
            components=components,
            tokens=tokens,
            role=role,
        )
    return show(found.document, text=text, table=partial(draw_projection, found))
