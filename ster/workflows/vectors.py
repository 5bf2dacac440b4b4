"""From contrastive pairs to vectors and to numbers: train, optimize, evaluate.

All sides of all pairs are read in one pass, each positive side before its negative one,
so that what a pair's sides have in common is computed once.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ster.documents.float32 import shortest
from ster.documents.pairs import PairSet
from ster.documents.steering import open_artifact
from ster.errors import DirectionError, require_type
from ster.runs.reading import Reading, plan_reading
from ster.runs.session import Session
from ster.text import decimal
from ster.vectors import metrics
from ster.vectors.directions import NO_DIRECTION, fit_directions
from ster.vectors.methods import METHODS, parse_method
from ster.vectors.selection import (
    Candidate,
    Evaluation,
    PairRows,
    Selection,
    score_candidates,
    score_layers,
    summarize_baseline,
)
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import StrengthChoice, StrengthTrial
from ster.workflows.compatibility import check_measured
from ster.workflows.strengths import encode_sides, select_strength

F32 = NDArray[np.float32]
Path = str | os.PathLike[str]


def train_vector(
    session: Session,
    pairs: PairSet,
    layers: tuple[int, ...],
    *,
    method: str = "caa",
    output: Path | None = None,
) -> SteeringVector:
    """Fit a direction at every layer.

    Args:
        session: What reads the pairs.
        pairs: The pairs.
        layers: Block indices, ascending.
        method: caa, pca or logistic.
        output: Where the artifact goes, if anywhere; tried before a weight is mapped.

    Raises:
        SterError: The method or a side is refused, the run does not fit, nothing can be
            fitted, or the artifact cannot be written.
    """
    require_type(pairs, PairSet, "pairs")
    method = parse_method(method)
    reading = _plan_pairs(session, pairs, layers, repeats=output is None)
    with _open_output(output) as write:
        vector = _fit_vector(session, pairs, layers, method, _read_pairs(reading))
        write(vector)
    return vector


def optimize_vector(
    session: Session,
    pairs: PairSet,
    layers: tuple[int, ...],
    *,
    holdout: float = 0.2,
    output: Path | None = None,
) -> Selection:
    """Choose method and layer on held-out pairs, then fit the best on all of them.

    Args:
        session: What reads the pairs.
        pairs: The pairs; the last ones are held out.
        layers: Block indices to choose from, ascending.
        holdout: The share of pairs that is held out.
        output: Where the artifact goes, if anywhere; tried before a weight is mapped.

    Raises:
        SterError: As for ``train_vector``, or the share leaves too few pairs.
    """
    num_fit = _count_fit(pairs, holdout)
    reading = _plan_pairs(session, pairs, layers, repeats=output is None)
    with _open_output(output) as write:
        rows = _read_pairs(reading)
        _say_split(session, num_fit, len(pairs) - num_fit)
        held = rows[num_fit:]
        candidates = rank_candidates(layers, rows[:num_fit], held)
        best = next(each for each in candidates if each.selected)
        winner = rows.at(layers.index(best.layer))
        vector = _fit_vector(session, pairs, (best.layer,), best.method, winner)
        vector = _say_choice(vector, len(candidates), len(pairs) - num_fit, len(pairs))
        write(vector)
    return Selection(
        vector=vector,
        candidates=candidates,
        fraction=holdout,
        num_fit=num_fit,
        num_holdout=len(pairs) - num_fit,
        random_best=summarize_baseline(held.random.max(axis=1)),
    )


def _count_fit(pairs: PairSet, holdout: float) -> int:
    require_type(pairs, PairSet, "pairs")
    return split_pairs(len(pairs), holdout)


def _require_types(pairs: object, vector: object, trial: object) -> None:
    require_type(pairs, PairSet, "pairs")
    require_type(vector, SteeringVector, "vector")
    if trial is not None:
        require_type(trial, StrengthTrial, "trial")


def evaluate_vector(
    session: Session,
    pairs: PairSet,
    vector: SteeringVector,
    trial: StrengthTrial | None = None,
) -> Evaluation:
    """Measure how each layer of a vector orders pairs, and what strengths do.

    Args:
        session: What reads and scores the pairs.
        pairs: The pairs.
        vector: What is measured; of this model.
        trial: The strengths to measure, if any.

    Raises:
        SterError: The vector or a side is refused, or the run does not fit.
    """
    _require_types(pairs, vector, trial)
    check_measured(vector, session)
    reading = _plan_pairs(session, pairs, vector.layers, repeats=True)
    sides = encode_sides(session, pairs, trial.max_sequence) if trial else None
    rows = _read_pairs(reading)
    evaluation = Evaluation(
        vector=vector,
        chat_template=session.encoder.chat_template,
        num_pairs=len(pairs),
        layers=score_layers(vector, rows),
    )
    if trial is None or sides is None:
        return evaluation
    norm = float(np.mean([each.residual_norm for each in evaluation.layers]))
    choice = StrengthChoice(
        candidates=select_strength(session, vector, sides.token_ids, trial, norm),
        layers=vector.layers,
        method=vector.method,
        num_pairs=len(pairs),
        num_scored=len(sides.token_ids) // 2,
        forms=sides.forms,
        residual_norm=norm,
    )
    return replace(evaluation, strength=choice)


def check_holdout(holdout: float) -> None:
    """Refuse a share that is wrong for any number of pairs.

    Raises:
        DirectionError: It is not above zero and below one.
    """
    if not 0 < holdout < 1:
        raise DirectionError("the held-out fraction must be above zero and below one")


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
            "at least one"
        )
    return num_fit


def _plan_pairs(
    session: Session, pairs: PairSet, layers: tuple[int, ...], *, repeats: bool
) -> Reading:
    return plan_reading(
        session,
        pairs.prompts,
        layers,
        repeats=repeats,
        label="reading pair",
        prompts_per_item=2,
    )


def _read_pairs(reading: Reading) -> PairRows:
    rows = np.concatenate([rows for _, rows in reading.waves()])
    return PairRows(positive=rows[0::2], negative=rows[1::2])


@contextmanager
def _open_output(path: Path | None) -> Iterator[Callable[[SteeringVector], None]]:
    if path is None:
        yield lambda _: None
        return
    with open_artifact(path) as write:
        yield lambda vector: write(vector.document)


def _fit_vector(
    session: Session,
    pairs: PairSet,
    layers: tuple[int, ...],
    method: str,
    rows: PairRows,
) -> SteeringVector:
    directions = fit_directions(method, rows.positive, rows.negative)
    margins = metrics.score_rows(rows.positive, directions)
    margins -= metrics.score_rows(rows.negative, directions)
    try:
        train_margin = metrics.mean_margins(margins, layers)
    except DirectionError as error:
        raise DirectionError(NO_DIRECTION, error) from error
    return SteeringVector(
        layers=layers,
        array=directions,
        model=session.files.model,
        model_revision=session.files.revision,
        precision=session.precision,
        chat_template=session.encoder.chat_template,
        trait_name=pairs.trait_name,
        method=method,
        train_margin=train_margin,
        train_accuracy=tuple(map(shortest, metrics.accuracy(margins))),
        metadata={"pair_count": str(len(pairs)), **_template_args(session)},
    )


def _template_args(session: Session) -> dict[str, str]:
    """Record the arguments of the chat template, if there are any."""
    told = session.choice.template_args
    return {"template_args": json.dumps(told, sort_keys=True)} if told else {}


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


def _say_choice(
    vector: SteeringVector, num_candidates: int, num_held: int, num_pairs: int
) -> SteeringVector:
    choice = (
        f"chosen over {num_candidates} candidates on a {num_held}-pair holdout, then "
        f"refitted on all {num_pairs} pairs"
    )
    return replace(vector, metadata={**vector.metadata, "selection": choice})
