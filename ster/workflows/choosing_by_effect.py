"""Choosing method and layer by what steering does to pairs that were not fitted on.

First all layers are read once, and candidates that tell the sides of held-out folds
apart no better than random directions are dropped. Then every other candidate, fitted
on one half of the pairs, steers the other half by plus and minus the same share of its
layer's norm. All that is measured at a layer shares the blocks below it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ster.documents.pair_sets.splits import fold_indices, split_indices
from ster.documents.pair_sets.wordings import advise_wordings
from ster.documents.pairs import PairSet
from ster.errors import DirectionError, require_type
from ster.runs.reading import LAST_ROWS, ReadingChoice
from ster.runs.session import Session
from ster.text import counted
from ster.vectors import metrics
from ster.vectors.directions import fit_directions
from ster.vectors.effect_selection import (
    EffectCandidate,
    EffectSelection,
    Reading,
    WeakDirectionError,
)
from ster.vectors.methods import EFFECT_METHODS
from ster.vectors.selection import PairRows, summarize_baseline
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import Strength, StrengthLike, take_share
from ster.workflows.confounds import check_confounds
from ster.workflows.pairs import plan_pairs, read_pairs
from ster.workflows.steering_halves import Measuring
from ster.workflows.strengths import encode_sides
from ster.workflows.training import fit_vector, open_output

Path = str | os.PathLike[str]
NUM_FOLDS = 5
# A share of the layer's own norm. Twice as much chose worse layers and did more damage
# (benchmarks/README.md).
STRENGTH = "0.1n"


def optimize_by_effect(
    session: Session,
    pairs: PairSet,
    layers: tuple[int, ...],
    *,
    strength: StrengthLike = STRENGTH,
    seed: int = 0,
    output: Path | None = None,
    write_anyway: bool = False,
    choice: ReadingChoice = LAST_ROWS,
) -> EffectSelection:
    """Choose method and layer by their effect, then fit the best on all pairs.

    Args:
        session: What reads and scores the pairs.
        pairs: The pairs.
        layers: Block indices to choose from, ascending.
        strength: What every candidate is steered with: a positive share of its layer's
            norm.
        seed: Decides folds and halves.
        output: Where the artifact goes, if anywhere; tried before a weight is opened.
        write_anyway: Write it though its direction is not worth it.
        choice: What is read of each side.

    Raises:
        WeakDirectionError: There is an output, and the best direction steers the wrong
            way or no better than a random one. Nothing is written.
        SterError: As for ``train_vector``, the pairs cannot be halved or scored, or
            the strength is no such share.
    """
    require_type(pairs, PairSet, "pairs")
    share = take_share(strength)
    parts = Parts.of(pairs, seed)
    sides = encode_sides(session, pairs, None).scored
    reading = plan_pairs(session, pairs, layers, repeats=output is None, choice=choice)
    with open_output(output, layers) as write:
        rows = read_pairs(reading)
        found = read_candidates(rows, layers, parts.folds)
        _say_rounds(session, found, len(pairs), share)
        with Measuring.open(session, sides, parts.halves) as measuring:
            measured = measuring.measure(found, rows, layers, share, seed)
        best = measured.best
        winner = rows.at(layers.index(best.layer))
        vector = fit_vector(session, pairs, (best.layer,), best.method, winner, choice)
        selection = EffectSelection(
            vector=_note_choice(vector, measured.candidates, len(pairs), share),
            candidates=measured.candidates,
            strength=str(share),
            num_pairs=len(pairs),
            num_scored=measured.num_scored,
            num_folds=len(parts.folds),
            seed=seed,
            random_effects=measured.random_effects,
            advice=advise_wordings(pairs.pairs),
            confounds=check_confounds(reading, best.reading.accuracy),
        )
        _say_doubts(session, selection, may_go_on=write_anyway or output is None)
        write(selection.vector)
    return selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """How pairs are split: what belongs together stays together.

    Args:
        folds: For each fold what to fit on and what to hold out.
        halves: The two halves.
    """

    folds: list[tuple[list[int], list[int]]]
    halves: tuple[list[int], list[int]]

    @classmethod
    def of(cls, pairs: PairSet, seed: int) -> Parts:
        """Split pairs.

        Raises:
            DirectionError: They cannot be halved.
        """
        groups = pairs.groups
        num_groups = len(set(groups))
        if num_groups < 2:
            raise DirectionError(
                f"{counted(len(pairs), 'pair')} cannot be halved, to fit on one half "
                "and steer the other",
                "pairs that share a prompt or a side stay together",
                field="pairs",
                found=num_groups,
                expected=2,
            )
        return cls(
            folds=fold_indices(groups, min(NUM_FOLDS, num_groups), seed),
            halves=split_indices(groups, 0.5, seed),
        )


def read_candidates(
    rows: PairRows,
    layers: Sequence[int],
    folds: Sequence[tuple[list[int], list[int]]],
) -> list[EffectCandidate]:
    """Measure how each method at each layer tells the pairs of held-out folds apart.

    Args:
        rows: What was read of the pairs at the layers.
        layers: Block indices, ascending.
        folds: As in ``Parts``.

    Returns:
        By layer, then by method.

    Raises:
        DirectionError: Nothing can be fitted, or a margin is not finite.
    """
    margins = {method: np.empty(rows.positive.shape[:2]) for method in EFFECT_METHODS}
    for fitted, held in folds:
        fit, rest = rows.take(fitted), rows.take(held)
        for method, each in margins.items():
            directions = fit_directions(method, fit.positive, fit.negative)
            upper = metrics.score_rows(rest.positive, directions)
            each[held] = upper - metrics.score_rows(rest.negative, directions)
    means = {
        method: metrics.mean_margins(each, layers) for method, each in margins.items()
    }
    shares = {method: metrics.accuracy(each) for method, each in margins.items()}
    return [
        EffectCandidate(
            layer=layer,
            method=method,
            reading=Reading(
                accuracy=float(shares[method][at]),
                interval=metrics.accuracy_interval(shares[method][at], len(rows)),
                margin=means[method][at],
                random=summarize_baseline(rows.random[:, at]),
                random_margin=float(rows.random_margin[at]),
            ),
        )
        for at, layer in enumerate(layers)
        for method in EFFECT_METHODS
    ]


def _say_rounds(
    session: Session,
    candidates: Sequence[EffectCandidate],
    num_pairs: int,
    share: Strength,
) -> None:
    beating = sum(each.reading.beats_random for each in candidates)
    kept = f"{beating} of {len(candidates)} candidates beat random directions"
    if not beating:
        kept = f"none of {len(candidates)} candidates beats random directions"
    session.reporter.note(
        f"{kept} on held-out folds; steering by ± {share} with "
        f"{'those' if beating else 'all'}, fitted on one half of "
        f"{counted(num_pairs, 'pair')} and scored on the other"
    )


def _say_doubts(
    session: Session, selection: EffectSelection, *, may_go_on: bool
) -> None:
    """Warn of a direction that is not worth it, or refuse it.

    Raises:
        WeakDirectionError: It may not go on with one.
    """
    if selection.doubts and not may_go_on:
        raise WeakDirectionError(selection)
    for doubt in selection.doubts:
        session.reporter.warn(doubt)


def _note_choice(
    vector: SteeringVector,
    candidates: Sequence[EffectCandidate],
    num_pairs: int,
    share: Strength,
) -> SteeringVector:
    """Write into the vector how it was chosen."""
    measured = sum(each.effect is not None for each in candidates)
    choice = (
        f"chosen over {measured} candidates by effect at {share}, cross-fitted on "
        f"halves of {num_pairs} pairs, then refitted on all of them"
    )
    return replace(vector, metadata={**vector.metadata, "selection": choice})
