"""``ster models``: which families there are, and how each was checked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ster.cli.answer import show
from ster.cli.options import Text
from ster.cli.tables.families import draw_families


def models(*, text: Text = None) -> Iterator[str]:
    """List the families of models that ster reads, and how each was checked.

    Those that run through mlx-lm do so on metal and cuda. `largest_error` is the
    largest difference from transformers in float64 that was seen, as a share of the
    layer's largest value.
    """
    from ster.architecture.catalogue import families

    listed = [
        {
            "checked": each.checked,
            "family": each.family,
            "largest_error": each.largest_error,
            "models": each.what,
            "through": each.through,
        }
        for each in families()
    ]
    table = partial(draw_families, listed)
    return show({"families": listed}, text=text, table=table)
