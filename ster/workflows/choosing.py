"""Choosing method and layer on held-out pairs, then fitting the best on all of them."""

from __future__ import annotations

import math
import os
from dataclasses import replace

from ster.documents.pairs import PairSet
from ster.errors import DirectionError, require_type
from ster.runs.reading import LAST_ROWS, ReadingChoice
from ster.runs.session import Session
from ster.text import decimal
from ster.vectors.directions import fit_directions
from ster.vectors.methods import METHODS
from ster.vectors.selection import (
    Candidate,
    PairRows,
    Selection,
    score_candidates,
    summarize_baseline,
)
from ster.vectors.steering import SteeringVector
from ster.workflows.confounds import check_confounds
from ster.workflows.pairs import plan_pairs, read_pairs
from ster.workflows.training import fit_vector, open_output

Path = str | os.PathLike[str]
HOLDOUT = 0.2


def optimize_vector(
    session: Session,
    pairs: PairSet,
    layers: tuple[int, ...],
    *,
    holdout: float = HOLDOUT,
    output: Path | None = None,
    choice: ReadingChoice = LAST_ROWS,
) -> Selection:
    """Choose method and layer on held-out pairs, then fit the best on all of them.

    Args:
        session: What reads the pairs.
        pairs: The pairs; the last ones are held out.
        layers: Block indices to choose from, ascending.
        holdout: The share of pairs that is held out.
        output: Where the artifact goes, if anywhere; tried before a weight is opened.
        choice: What is read of each side.

    Raises:
        SterError: As for ``train_vector``, or the share leaves too few pairs.
    """
    require_type(pairs, PairSet, "pairs")
    num_fit = split_pairs(len(pairs), holdout)
    num_held = len(pairs) - num_fit
    reading = plan_pairs(session, pairs, layers, repeats=output is None, choice=choice)
    with open_output(output, layers) as write:
        rows = read_pairs(reading)
        _say_split(session, num_fit, num_held)
        held = rows[num_fit:]
        candidates = rank_candidates(layers, rows[:num_fit], held)
        best = next(each for each in candidates if each.selected)
        winner = rows.at(layers.index(best.layer))
        vector = fit_vector(session, pairs, (best.layer,), best.method, winner, choice)
        vector = _note_choice(vector, len(candidates), num_held, len(pairs))
        write(vector)
    confounds = check_confounds(reading, best.accuracy, range(num_fit, len(pairs)))
    return Selection(
        vector=vector,
        candidates=candidates,
        fraction=holdout,
        num_fit=num_fit,
        num_holdout=num_held,
        random_best=summarize_baseline(held.random.max(axis=1)),
        confounds=confounds,
    )


def check_holdout(holdout: float) -> None:
    """Refuse a share that leaves nothing whatever the number of pairs.

    Raises:
        DirectionError: It is not above zero and below one.
    """
    if not 0 < holdout < 1:
        raise DirectionError(
            "the held-out fraction must be above zero and below one",
            field="holdout",
            found=holdout,
            expected="above zero and below one",
        )


def split_pairs(num_pairs: int, holdout: float) -> int:
    """Return how many pairs are fitted on, in file order; the rest is held out.

    Raises:
        DirectionError: Either part would be empty.
    """
    check_holdout(holdout)
    num_held = math.floor(num_pairs * holdout + 0.5)
    num_fit = num_pairs - num_held
    if num_fit < 1 or num_held < 1:
        raise DirectionError(
            f"a held-out fraction of {decimal(holdout)} over {num_pairs} contrastive "
            f"pairs leaves {num_fit} pairs to fit and {num_held} to rank on; both need "
            "at least one",
            field="holdout",
            found=holdout,
        )
    return num_fit


def rank_candidates(
    layers: tuple[int, ...], fitted: PairRows, held: PairRows
) -> tuple[Candidate, ...]:
    """Fit and measure every candidate, and mark the best, the earlier of exact ties."""
    by_method = [
        score_candidates(
            method,
            layers,
            fit_directions(method, fitted.positive, fitted.negative),
            held,
        )
        for method in METHODS
    ]
    candidates = [
        each for at_layer in zip(*by_method, strict=True) for each in at_layer
    ]
    best = max(candidates, key=lambda each: (each.accuracy, each.margin))
    return tuple(replace(each, selected=each is best) for each in candidates)


def _say_split(session: Session, num_fit: int, num_held: int) -> None:
    session.reporter.note(
        f"fitting each candidate on {num_fit} pairs and ranking on a {num_held}-pair "
        "holdout"
    )
    if num_held == 1:
        session.reporter.note(
            "a one-pair holdout scores every candidate 0 or 1, so this ranking "
            "separates almost nothing; add pairs to make the choice mean something"
        )


def _note_choice(
    vector: SteeringVector, num_candidates: int, num_held: int, num_pairs: int
) -> SteeringVector:
    """Write into the vector how it was chosen."""
    choice = (
        f"chosen over {num_candidates} candidates on a {num_held}-pair holdout, then "
        f"refitted on all {num_pairs} pairs"
    )
    return replace(vector, metadata={**vector.metadata, "selection": choice})
