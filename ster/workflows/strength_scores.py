"""What is scored to measure strengths: at both signs, and with turned copies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.errors import CapacityError
from ster.runs.scoring import Scorer, Scoring, plan_scoring
from ster.runs.session import Session
from ster.stream.changes import Deltas
from ster.text import counted
from ster.vectors.controls import turn_at_random
from ster.vectors.effects import odd_parts
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import Strength
from ster.vectors.trials import StrengthTrial
from ster.workflows.interventions import trial_deltas
from ster.workflows.steered_sides import SideScores, SteeredSides

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
        steered: At every strength, and at 0.
        turned: At every strength but 0, with the opposite vector.
        controls: By strength, the mean effect of each turned copy on some of the pairs.
        control_pairs: Which these are.
    """

    steered: dict[Strength, SideScores]
    turned: dict[Strength, SideScores]
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
        """Score at strengths, with the opposite vector too, and at 0.

        Raises:
            DirectionError: A strength makes the vector too long.
            NumericsError: A score is no finite number.
            CapacityError: Not even one response fits.
        """
        nothing = Strength(value=0.0), False
        asked = [each for each in strengths if each.value]
        keys = [key for each in asked for key in ((each, False), self._turned(each))]
        distinct = [*dict.fromkeys([nothing, *keys])]
        found = score_in_slices(
            lambda steerings: self.sides.plan(
                self.session,
                self.trial.batch_size,
                steerings=steerings,
                by_prompt=self.trial.applying.where.needs_prompt,
            ),
            self.sides.score,
            [self._deltas(self.vector.array, *key) for key in distinct],
        )
        scores = dict(zip(distinct, found, strict=True))
        pairs = spread(len(self.sides.sides.forms) // 2, _CONTROL_PAIRS)
        return StrengthScores(
            steered={each: scores[each, False] for each in (nothing[0], *asked)},
            turned={each: scores[self._turned(each)] for each in asked},
            controls=self._control(asked, pairs),
            control_pairs=pairs,
        )

    def _control(
        self, asked: Sequence[Strength], pairs: Sequence[int]
    ) -> dict[Strength, tuple[float, ...]]:
        """Measure turned copies; the effect at an opposite strength is the opposite."""
        if self.trial.applying.is_even:
            return {}
        if not self.trial.applying.is_odd:
            return self._score_copies([*dict.fromkeys(asked)], pairs)
        found = self._score_copies([*dict.fromkeys(map(magnitude, asked))], pairs)
        return {
            each: tuple(
                math.copysign(1.0, each.value) * effect
                for effect in found[magnitude(each)]
            )
            for each in asked
            if found
        }

    def _turned(self, strength: Strength) -> tuple[Strength, bool]:
        """Tell at which strength which vector does what the opposite vector does."""
        if self.trial.applying.is_odd:
            return opposite(strength), False
        return strength, not self.trial.applying.is_even

    def _score_copies(
        self, strengths: Sequence[Strength], pairs: Sequence[int]
    ) -> dict[Strength, tuple[float, ...]]:
        """Score turned copies of the vector at both signs, all in few streams."""
        count = self.trial.random_directions
        if not count or not strengths:
            return {}
        num_pairs = len(self.sides.sides.forms) // 2
        self.session.reporter.note(
            f"{counted(count, 'random direction')} at "
            f"{counted(len(strengths), 'strength')} and both signs, on "
            f"{len(pairs)} of {counted(num_pairs, 'pair')}"
        )
        sides = self.sides.take(pairs).sides
        copies = turn_at_random(self.vector.array, count, _SEED)
        scores = score_in_slices(
            lambda steerings: plan_scoring(
                self.session,
                sides,
                self.trial.batch_size,
                steerings=steerings,
                by_prompt=self.trial.applying.where.needs_prompt,
            ),
            lambda scorer, steerings: scorer.score_all(steerings),
            [
                self._deltas(copy, each, is_turned)
                for each in strengths
                for copy in copies
                for is_turned in (False, True)
            ],
        )
        effects = [
            float(odd_parts(np.array(up), np.array(down)).mean())
            for up, down in zip(scores[0::2], scores[1::2], strict=True)
        ]
        return {
            each: tuple(effects[number * count : (number + 1) * count])
            for number, each in enumerate(strengths)
        }

    def _deltas(self, array: F32, strength: Strength, is_turned: bool) -> Deltas:
        if not strength.value:
            return {}  # adding zero would still turn -0.0 into 0.0
        return trial_deltas(
            self.vector.replaced(array=-array if is_turned else array),
            strength,
            self.residual_norms,
            self.trial.applying,
            self.session.spec.num_hidden_layers,
        )


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
