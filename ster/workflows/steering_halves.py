"""Steering each half of pairs with what was fitted on the other half.

All that is measured at a layer runs as one stream, which is one up to that layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ster.runs.progress import Whole
from ster.runs.scoring import Scorer, plan_scoring
from ster.runs.session import Session
from ster.stream.changes import Deltas
from ster.vectors.directions import fit_directions
from ster.vectors.effect_selection import EffectCandidate
from ster.vectors.effects import Effect, odd_parts, random_directions
from ster.vectors.methods import EFFECT_METHODS
from ster.vectors.selection import PairRows
from ster.vectors.strengths import Strength
from ster.workflows.interventions import check_length
from ster.workflows.steered_sides import SteeredSides

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
RANDOM_DIRECTIONS = 10
# Pairs of each half that are steered; more would change few choices and cost hours.
MOST_SCORED = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One half of the pairs, which directions of the other half steer.

    Args:
        sides: Its sides, and the neutral answers.
        scorer: What scores them.
        pairs: The numbers of the pairs.
        fitted_on: Those of the other half.
        neutral: Log p per token of the neutral answers, unsteered.
        alone: What scores the sides without the neutral answers.
    """

    sides: SteeredSides
    scorer: Scorer
    pairs: list[int]
    fitted_on: list[int]
    neutral: float
    alone: Scorer

    def measure(self, layer: int, deltas: F32, whole: Whole) -> tuple[F64, F64]:
        """Steer by plus and minus some vectors after a layer.

        Args:
            layer: A block index.
            deltas: (num_vectors, hidden_size).
            whole: What this is a part of.

        Returns:
            The odd part of each pair's shift, (num_vectors, num_pairs), and the damage
            at the worse sign, (num_vectors,).
        """
        steerings = _both_ways(layer, deltas)
        found = self.sides.score(self.scorer, steerings, whole)
        ups, downs = found[0::2], found[1::2]
        both = [*zip(ups, downs, strict=True)]
        odd = [odd_parts(up.sides, down.sides) for up, down in both]
        lost = [self.neutral - min(up.neutral, down.neutral) for up, down in both]
        return np.array(odd), np.array(lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What steering showed.

    Args:
        candidates: All of them, the best one selected.
        best: That one.
        random_effects: Of random directions of the same length at its layer.
        num_scored: How many pairs were steered.
    """

    candidates: tuple[EffectCandidate, ...]
    best: EffectCandidate
    random_effects: tuple[float, ...]
    num_scored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """The halves of pairs, with the weights open.

    Args:
        halves: Each steered by what was fitted on the other.
    """

    halves: list[Half]

    @classmethod
    @contextmanager
    def open(
        cls,
        session: Session,
        sides: SteeredSides,
        halves: tuple[list[int], list[int]],
    ) -> Iterator[Measuring]:
        """Open the weights once for both halves, and score them unsteered.

        Raises:
            SterError: The run does not fit, or a score is no finite number.
        """
        number = 2 * len(EFFECT_METHODS)
        scored = [thin(half, MOST_SCORED) for half in halves]
        parts = [sides.take(half) for half in scored]
        plans = [part.plan(session, steerings=number) for part in parts]
        longest = max(plans, key=lambda each: each.plan.num_tokens)
        whole = Whole.of("scoring response", [each.plan for each in plans])
        with longest.open() as scorer:
            opened: list[Half] = []
            for at, (part, plan) in enumerate(zip(parts, plans, strict=True)):
                own = replace(scorer, scoring=plan)
                opened.append(
                    Half(
                        sides=part,
                        scorer=own,
                        pairs=scored[at],
                        fitted_on=halves[1 - at],
                        neutral=part.score(own, [{}], whole)[0].neutral,
                        alone=replace(
                            scorer,
                            scoring=plan_scoring(
                                session, part.sides, None, steerings=number
                            ),
                        ),
                    )
                )
            yield cls(halves=opened)

    def measure(
        self,
        candidates: Sequence[EffectCandidate],
        rows: PairRows,
        layers: Sequence[int],
        share: Strength,
        seed: int,
    ) -> Measured:
        """Measure candidates, then random directions where the best one steers.

        Args:
            candidates: As they were read.
            rows: What was read of the pairs.
            layers: Of the rows.
            share: What is steered with, a share of each layer's norm.
            seed: Decides the random directions.
        """
        beating = [each for each in candidates if each.reading.beats_random]
        methods = _methods_by_layer(beating or candidates)
        whole = self._count_work(len(methods))
        odd, damage = self.measure_all(methods, rows, layers, share, whole)
        found = _choose(candidates, odd, damage)
        best = next(each for each in found if each.selected)
        at_best = rows.at(layers.index(best.layer))
        chance = self.measure_chance(best.layer, at_best, share, seed, whole)
        return Measured(
            candidates=tuple(found),
            best=best,
            random_effects=tuple(chance),
            num_scored=sum(len(half.pairs) for half in self.halves),
        )

    def measure_all(
        self,
        methods: Mapping[int, Sequence[str]],
        rows: PairRows,
        layers: Sequence[int],
        share: Strength,
        whole: Whole,
    ) -> tuple[dict[tuple[int, str], F64], dict[tuple[int, str], float]]:
        """Measure methods, those of a layer together.

        Returns:
            By layer and method, the odd part of each pair's shift, and the damage.
        """
        odd: dict[tuple[int, str], F64] = {}
        damage: dict[tuple[int, str], float] = {}
        for layer, those in methods.items():
            own = rows.at(layers.index(layer))
            amount = _amount(layer, own, share)
            found, lost = self._measure(layer, those, own, amount, whole)
            for index, method in enumerate(those):
                odd[layer, method] = found[index]
                damage[layer, method] = float(lost[index])
        return odd, damage

    def measure_chance(
        self,
        layer: int,
        rows: PairRows,
        share: Strength,
        seed: int,
        whole: Whole,
    ) -> list[float]:
        """Measure random directions at the layer that the rows are of.

        Nobody asks what they damage.
        """
        size = rows.positive.shape[-1]
        drawn = random_directions(RANDOM_DIRECTIONS, size, seed)
        drawn *= _amount(layer, rows, share)
        effects: list[float] = []
        for at in range(0, len(drawn), len(EFFECT_METHODS)):
            few = drawn[at : at + len(EFFECT_METHODS)]
            found = [measure_odd(half.alone, layer, few, whole) for half in self.halves]
            effects += map(float, np.concatenate(found, axis=1).mean(axis=1))
        return effects

    def _count_work(self, num_layers: int) -> Whole:
        """Count what is steered in all, at so many layers and then at random."""
        draws = -(-RANDOM_DIRECTIONS // len(EFFECT_METHODS))
        plans = [
            plan
            for half in self.halves
            for plan in (
                *[half.scorer.scoring.plan] * num_layers,
                *[half.alone.scoring.plan] * draws,
            )
        ]
        return Whole.of("scoring steered response", plans)

    def _measure(
        self,
        layer: int,
        methods: Sequence[str],
        rows: PairRows,
        amount: np.float32,
        whole: Whole,
    ) -> tuple[F64, F64]:
        """Measure methods at a layer on both halves, each by the fit of the other.

        Returns:
            Odd parts of the first half's pairs, then of the second's, (num_methods,
            num_scored), and the mean damage of both halves' directions, (num_methods,).
        """
        odd: list[F64] = []
        damage = np.zeros(len(methods))
        for half in self.halves:
            fit = rows.take(half.fitted_on)
            fits = [
                fit_directions(each, fit.positive, fit.negative) for each in methods
            ]
            deltas = np.concatenate(fits) * amount
            found, lost = half.measure(layer, deltas, whole)
            odd.append(found)
            damage += lost / len(self.halves)
        return np.concatenate(odd, axis=1), damage


def _amount(layer: int, rows: PairRows, share: Strength) -> np.float32:
    """Say how far a layer's candidates steer.

    Raises:
        DirectionError: Too far for float32.
    """
    amount = share.times(float(rows.mean_norms[0]))
    check_length(layer, amount * amount)
    return np.float32(amount)


def _choose(
    candidates: Sequence[EffectCandidate],
    odd: dict[tuple[int, str], F64],
    damage: dict[tuple[int, str], float],
) -> list[EffectCandidate]:
    """Select the best of those that were measured, and tell which tie with it."""
    measured: dict[tuple[int, str], EffectCandidate] = {}
    for each in candidates:
        key = each.layer, each.method
        if key in odd:
            effect = Effect.of(odd[key])
            measured[key] = replace(each, effect=effect, damage=damage[key])
    best = max(measured, key=lambda key: (measured[key].rank, -damage[key]))
    found: list[EffectCandidate] = []
    for each in candidates:
        key = each.layer, each.method
        if key not in measured:
            found.append(each)
            continue
        less = Effect.of(odd[best] - odd[key])
        tied = key != best and not (less.interval and less.interval[0] > 0)
        found.append(replace(measured[key], selected=key == best, tied=tied))
    return found


def measure_odd(
    scorer: Scorer, layer: int, deltas: F32, whole: Whole | None = None
) -> F64:
    """Steer pairs by plus and minus some vectors after a layer.

    Args:
        scorer: Of their sides alone, positive and negative alternating.
        layer: A block index.
        deltas: (num_vectors, hidden_size).
        whole: What this is a part of, if progress counts more.

    Returns:
        The odd part of each pair's shift, (num_vectors, num_pairs).
    """
    scores = np.array(scorer.score_all(_both_ways(layer, deltas), whole))
    both = zip(scores[0::2], scores[1::2], strict=True)
    return np.array([odd_parts(up, down) for up, down in both])


def _both_ways(layer: int, deltas: F32) -> list[Deltas]:
    """Add each vector after a layer, and each one's opposite behind it."""
    return [{layer: sign * each} for each in deltas for sign in (1, -1)]


def _methods_by_layer(
    candidates: Sequence[EffectCandidate],
) -> dict[int, list[str]]:
    """List the methods of candidates, layer by layer in their order."""
    methods: dict[int, list[str]] = {}
    for each in candidates:
        methods.setdefault(each.layer, []).append(each.method)
    return methods


def thin(numbers: Sequence[int], most: int) -> list[int]:
    """Keep so many at most, evenly spread, in their order."""
    if len(numbers) <= most:
        return list(numbers)
    return [numbers[at * len(numbers) // most] for at in range(most)]
