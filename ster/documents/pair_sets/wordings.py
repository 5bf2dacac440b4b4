"""Whether pairs have several wordings: a direction fitted to one may be its alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ster.documents.pair_sets.pair import ContrastPair
from ster.text import one_line

# Words that a wording is told by, and the share of sides that may have the same ones.
_WORDS = 3
_SHARE = 0.8


def advise_wordings(pairs: Sequence[ContrastPair]) -> tuple[str, ...]:
    """Advise several wordings where nearly all positive sides begin alike.

    Args:
        pairs: The pairs.

    Returns:
        Nothing where there are several wordings, or too few pairs to tell.
    """
    beginnings = Counter(
        " ".join((pair.prompt or pair.positive).split()[:_WORDS]) for pair in pairs
    )
    (words, count), *_ = beginnings.most_common(1)
    if len(pairs) < _WORDS or count < _SHARE * len(pairs):
        return ()
    return (
        f"{count} of {len(pairs)} pairs begin with {one_line(words)!r}: several "
        "wordings make a direction that holds for other texts too",
    )
