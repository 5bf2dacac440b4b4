"""Which pairs belong together, so that none is fitted on and held out at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace

from ster.documents.pair_sets.pair import ContrastPair
from ster.documents.pair_sets.splits import group_by_keys

# A side in more pairs than both is part of how the pairs were made, as "(A)" is, and no
# repetition: it would tie all of them together.
_FEW = 3
_SHARE = 0.1


def find_groups(pairs: Sequence[ContrastPair]) -> list[int]:
    """Group pairs that share a prompt, a side or what they were made of.

    Returns:
        The group of each pair, counted from 0 in order of appearance.
    """
    most = max(_FEW, _SHARE * len(pairs))
    sides = Counter(side for pair in pairs for side in {pair.positive, pair.negative})
    keys: list[list[Hashable]] = []
    for pair in pairs:
        own: list[Hashable] = [
            (name, value)
            for name in ("prompt", "group")
            if (value := getattr(pair, name)) is not None
        ]
        same = pair.positive == pair.negative  # then it is what is asked, never said
        # The same pair again is a repetition, however often it comes.
        own.append(("pair", replace(pair, group=None)))
        own += [
            ("side", side)
            for side in (pair.positive, pair.negative)
            if same or sides[side] <= most
        ]
        keys.append(own)
    return group_by_keys(keys)
