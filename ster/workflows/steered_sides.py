"""Scoring the sides of pairs and neutral answers together, under several steerings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ster.checkpoint.tokens.responses import EncodedResponses
from ster.runs.progress import Whole
from ster.runs.scoring import Scorer, Scoring, plan_scoring
from ster.runs.session import Session
from ster.stream.changes import Deltas

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideScores:
    """What one steering makes of pairs and of neutral answers.

    Args:
        sides: Log p of each side, positive and negative alternating, (2·num_pairs,).
        neutral: Log p of the neutral answers, per token.
    """

    sides: F64
    neutral: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeredSides:
    """Sides of pairs, and neutral answers that are scored beside them.

    Args:
        sides: Encoded as responses, positive and negative alternating.
        neutral: Answers that steering should leave alone.
    """

    sides: EncodedResponses
    neutral: EncodedResponses

    def take(self, pairs: Sequence[int]) -> SteeredSides:
        """Take some of the pairs, counted from 0."""
        numbers = [side for pair in pairs for side in (2 * pair, 2 * pair + 1)]
        return SteeredSides(sides=self.sides.take(numbers), neutral=self.neutral)

    def plan(
        self,
        session: Session,
        batch_size: int | None = None,
        *,
        steerings: int,
        by_prompt: bool = False,
    ) -> Scoring:
        """Plan their scoring; see ``plan_scoring``.

        Raises:
            SterError: A batch would be empty, or not even one response fits.
        """
        responses = self.sides.join(self.neutral)
        return plan_scoring(
            session, responses, batch_size, steerings=steerings, by_prompt=by_prompt
        )

    def score(
        self,
        scorer: Scorer,
        steerings: Sequence[Deltas],
        whole: Whole | None = None,
    ) -> list[SideScores]:
        """Score them all under each of some steerings.

        Args:
            scorer: Of what ``plan`` planned.
            steerings: As many as were planned for, or fewer.
            whole: What this is a part of, if progress counts more.

        Raises:
            NumericsError: A score is no finite number.
        """
        num_tokens = sum(self.neutral.num_counted)
        found: list[SideScores] = []
        for scores in scorer.score_all(steerings, whole):
            sides, neutral = np.split(np.array(scores), [len(self.sides.forms)])
            found.append(
                SideScores(sides=sides, neutral=float(neutral.sum() / num_tokens))
            )
        return found
