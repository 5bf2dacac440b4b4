"""What is scored to measure strengths: at both signs, and with turned copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.errors import CapacityError
from ster.runs.scoring import Scorer, Scoring, plan_scoring
from ster.runs.session import Session
from ster.runs.streams import Deltas
from ster.text import counted
from ster.vectors.controls import turn_at_random
from ster.vectors.effects import odd_parts
from ster.vectors.measured import StrengthTrial
from ster.vectors.norms import scale_rows
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import Strength
from ster.workflows.steered_sides import SideScores, SteeredSides
from ster.workflows.steering import check_lengths

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Found = TypeVar("Found")
# Turned copies are measured on so many pairs at most.
_CONTROL_PAIRS = 16
_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StrengthScores:
    """Scores of sides and neutral answers, by strength.

    Args:
        steered: At every strength, at its opposite, and at 0.
        controls: By what a strength is without its sign, the mean effect of each copy
            on some of the pairs.
        control_pairs: Which these are.
    """

    steered: dict[Strength, SideScores]
    controls: dict[Strength, tuple[float, ...]]
    control_pairs: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StrengthScoring:
    """How strengths of a vector are scored.

    Args:
        session: What scores.
        vector: What is steered with.
        sides: The sides, and neutral answers.
        trial: The strengths.
        residual_norms: As for ``measure_strengths``.
    """

    session: Session
    vector: SteeringVector
    sides: SteeredSides
    trial: StrengthTrial
    residual_norms: tuple[float, ...]

    def score(self, strengths: Sequence[Strength]) -> StrengthScores:
        """Score at strengths, at their opposites, and at 0.

        Raises:
            DirectionError: A strength makes the vector too long.
            NumericsError: A score is no finite number.
            CapacityError: Not even one response fits.
        """
        asked = [each for each in strengths if each.value]
        both = [sign for each in asked for sign in (each, opposite(each))]
        distinct = [*dict.fromkeys([Strength(value=0.0), *both])]
        found = score_in_slices(
            lambda steerings: self.sides.plan(
                self.session, self.trial.batch_size, steerings=steerings
            ),
            self.sides.score,
            [self._deltas(self.vector.array, each) for each in distinct],
        )
        magnitudes = [*dict.fromkeys(map(magnitude, asked))]
        pairs = spread(len(self.sides.sides.forms) // 2, _CONTROL_PAIRS)
        return StrengthScores(
            steered=dict(zip(distinct, found, strict=True)),
            controls=self._score_copies(magnitudes, pairs),
            control_pairs=pairs,
        )

    def _score_copies(
        self, magnitudes: Sequence[Strength], pairs: Sequence[int]
    ) -> dict[Strength, tuple[float, ...]]:
        """Score turned copies of the vector at both signs, all in few streams."""
        count = self.trial.random_directions
        if not count or not magnitudes:
            return {}
        num_pairs = len(self.sides.sides.forms) // 2
        self.session.reporter.note(
            f"{counted(count, 'random direction')} at "
            f"{counted(len(magnitudes), 'strength')} and both signs, on "
            f"{len(pairs)} of {counted(num_pairs, 'pair')}"
        )
        sides = self.sides.take(pairs).sides
        copies = turn_at_random(self.vector.array, count, _SEED)
        scores = score_in_slices(
            lambda steerings: plan_scoring(
                self.session, sides, self.trial.batch_size, steerings=steerings
            ),
            lambda scorer, steerings: scorer.score_all(steerings),
            [
                self._deltas(copy, sign)
                for each in magnitudes
                for copy in copies
                for sign in (each, opposite(each))
            ],
        )
        effects = [
            float(odd_parts(np.array(up), np.array(down)).mean())
            for up, down in zip(scores[0::2], scores[1::2], strict=True)
        ]
        return {
            each: tuple(effects[number * count : (number + 1) * count])
            for number, each in enumerate(magnitudes)
        }

    def _deltas(self, array: F32, strength: Strength) -> dict[int, F32]:
        if not strength.value:
            return {}  # adding zero would still turn -0.0 into 0.0
        scaled = scale_rows(array, strength, self.residual_norms)
        deltas = dict(zip(self.vector.layers, scaled, strict=True))
        check_lengths(deltas)
        return deltas


def score_in_slices(
    plan: Callable[[int], Scoring],
    score: Callable[[Scorer, Sequence[Deltas]], Sequence[Found]],
    steerings: Sequence[Deltas],
) -> list[Found]:
    """Score under steerings, as many at once as memory allows.

    The weights are opened once for all.

    Args:
        plan: Plans the scoring under so many.
        score: Scores under some.
        steerings: All of them.

    Raises:
        CapacityError: Not even one response under one steering fits.
    """
    size = len(steerings)
    while True:
        try:
            scoring = plan(size)
            break
        except CapacityError:
            if size == 1:
                raise
            size = (size + 1) // 2
    found: list[Found] = []
    with scoring.open() as scorer:
        for start in range(0, len(steerings), size):
            found += score(scorer, steerings[start : start + size])
    return found


def magnitude(strength: Strength) -> Strength:
    """Return a strength without its sign."""
    return replace(strength, value=abs(strength.value))


def opposite(strength: Strength) -> Strength:
    """Return a strength with the other sign."""
    return replace(strength, value=-strength.value)


def spread(num_pairs: int, at_most: int) -> list[int]:
    """Take pairs that are spread evenly, from the first to the last."""
    count = min(num_pairs, at_most)
    return [*map(int, np.linspace(0, num_pairs - 1, count).round())]
