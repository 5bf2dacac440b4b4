"""How alike vectors are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ster.cli.tables.drawing import Column, Columns, plain, share
from ster.layers import name_layers
from ster.text import counted, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ster.vectors.comparison import Comparison, Likeness


def draw_comparison(found: Comparison) -> Iterator[RenderableType]:
    """Show groups, uniqueness and the cosine of each two."""
    from rich.text import Text

    number = len(found.labels)
    yield Text(f"{counted(number, 'vector')} compared", style="bold")
    yield plain(f"{one_line(found.model)}, {name_layers(found.layers)}")
    yield ""
    numbers = [str(each + 1) for each in range(number)]
    columns = [
        Column(name="", cells=numbers),
        Column(name="vector", cells=[*map(one_line, found.labels)], is_text=True),
        Column(name="cluster", cells=[str(each) for each in found.clusters]),
        Column(name="unique", cells=[*map(share, found.uniqueness)]),
    ]
    # Cosines with the last vectors are left out first.
    for index, cosines in enumerate(found.similarity):
        cells = [f"{each:+.2f}" for each in cosines]
        columns.append(Column(name=f"cos {index + 1}", cells=cells, rank=index + 1))
    yield Columns(columns=columns)
    yield _pair("most similar", found.most_similar)
    yield _pair("most different", found.most_different)
    if found.silhouette is not None:
        yield f"silhouette of the clusters: {found.silhouette:.3f}, 1 is the best"
    yield "unique: share of the length that no sum of the others makes up"
    yield f"cos: mean cosine over {counted(len(found.layers), 'layer')}"


def _pair(words: str, both: Likeness) -> RenderableType:
    named = f"{one_line(both.a)} and {one_line(both.b)}"
    return plain(f"{words}: {named}, cosine {both.cosine:.3f}")
