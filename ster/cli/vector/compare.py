"""``ster vector compare``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from ster.cli.answer import show
from ster.cli.options import Text
from ster.cli.tables.comparisons import draw_comparison
from ster.errors import DocumentError, UsageError


def _check_clusters(number: int) -> int:
    """Refuse what is no number of groups."""
    if number < 1:
        raise UsageError(
            f"--clusters must be at least 1, not {number}",
            field="--clusters",
            found=number,
        )
    return number


Artifacts = Annotated[
    list[str],
    typer.Argument(metavar="ARTIFACT...", help="Steering artifacts of one model."),
]
Clusters = Annotated[
    int,
    typer.Option(
        "--clusters",
        metavar="<N>",
        callback=_check_clusters,
        help="How many groups to make of them.",
    ),
]
ComparedLayers = Annotated[
    str,
    typer.Option(
        "--layers",
        metavar="<LAYERS>",
        help="Which layers to compare, all of them in every artifact: indices and "
        "half-open ranges, or all that they have in common.",
    ),
]


def compare(
    *,
    artifacts: Artifacts,
    clusters: Clusters,
    layers: ComparedLayers = "all",
    text: Text = None,
) -> Iterator[str]:
    """Show how alike vectors are, and which group together.

    Prints the cosine and the distance of each two, what of each no sum of the others
    makes up, and groups by average linkage. Needs no model.
    """
    # Late, so that `ster --help` does not wait for the array libraries.
    from ster.vectors.comparable import check_numbers
    from ster.vectors.comparison import compare_vectors
    from ster.vectors.steering import SteeringVector

    check_numbers(len(artifacts), clusters)
    vectors = []
    for path in artifacts:
        try:
            vector = SteeringVector.load(path)
        except DocumentError as error:
            raise DocumentError(f"failed to compare {path}", error) from error
        vectors.append(replace(vector, source=path))
    found = compare_vectors(vectors, clusters, layers)
    return show(found.document, text=text, table=partial(draw_comparison, found))
