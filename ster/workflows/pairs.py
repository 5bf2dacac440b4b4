"""Reading both sides of contrastive pairs, in one pass.

Each positive side stands before its negative one, so that what a pair's sides have in
common is computed once.
"""

from __future__ import annotations

from ster.documents.pairs import PairSet
from ster.runs.gathering import Gathering
from ster.runs.reading import Reading, ReadingChoice, plan_reading
from ster.runs.session import Session
from ster.vectors.selection import PairRows


def plan_pairs(
    session: Session, pairs: PairSet, layers: tuple[int, ...], *, repeats: bool
) -> Reading:
    """Encode both sides of all pairs and plan their reading; see ``plan_reading``.

    Raises:
        SterError: A side is refused, or the run does not fit.
    """
    return plan_reading(
        session,
        pairs.prompts,
        layers,
        repeats=repeats,
        choice=ReadingChoice(asked=pairs.asked),
        label="reading pair",
        prompts_per_item=2,
    )


def read_pairs(reading: Reading) -> PairRows:
    """Read what was planned.

    Raises:
        SterError: As for ``Reading.waves``.
    """
    gathering = Gathering(reading)
    for _, arrays in reading.waves():
        gathering.add(arrays)
        del arrays  # or they would be there beside the next wave's
    (rows,) = gathering.arrays()
    return PairRows(positive=rows[0::2], negative=rows[1::2])
