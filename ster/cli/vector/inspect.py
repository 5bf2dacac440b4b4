"""``ster vector inspect``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ster.cli.answer import show
from ster.cli.options import Text
from ster.cli.tables.vectors import draw_vector
from ster.cli.vector.options import Artifact
from ster.errors import DocumentError


def inspect(*, artifact: Artifact, text: Text = None) -> Iterator[str]:
    """Show what a steering artifact holds."""
    from ster.vectors.steering import SteeringVector

    try:
        vector = SteeringVector.load(artifact)
    except DocumentError as error:
        raise DocumentError(f"failed to inspect {artifact}", error) from error
    table = partial(draw_vector, vector)
    return show({"artifact": vector.summary}, text=text, table=table)
