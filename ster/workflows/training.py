"""From contrastive pairs to a vector: fitted at every layer, and written down."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from ster.documents.float32 import shortest
from ster.documents.pairs import PairSet
from ster.documents.steering import open_artifact
from ster.errors import DirectionError, require_type
from ster.layers import name_layers
from ster.runs.reading import LAST_ROWS, ReadingChoice
from ster.runs.session import Session
from ster.vectors import metrics
from ster.vectors.directions import NO_DIRECTION, fit_directions
from ster.vectors.methods import parse_method
from ster.vectors.norms import note_norms
from ster.vectors.selection import PairRows
from ster.vectors.steering import SteeringVector
from ster.workflows.confounds import check_confounds
from ster.workflows.pairs import note_reading, plan_pairs, read_pairs

Path = str | os.PathLike[str]


def train_vector(
    session: Session,
    pairs: PairSet,
    layers: tuple[int, ...],
    *,
    method: str = "caa",
    output: Path | None = None,
    choice: ReadingChoice = LAST_ROWS,
) -> SteeringVector:
    """Fit a direction at every layer.

    Args:
        session: What reads the pairs.
        pairs: The pairs.
        layers: Block indices, ascending.
        method: caa, pca, logistic, logreg or pca-uncentred.
        output: Where the artifact goes, if anywhere; tried before a weight is opened.
        choice: What is read of each side.

    Raises:
        SterError: A word or a side is refused, the run does not fit, nothing can be
            fitted, or the artifact cannot be written.
    """
    require_type(pairs, PairSet, "pairs")
    method = parse_method(method)
    reading = plan_pairs(session, pairs, layers, repeats=output is None, choice=choice)
    with open_output(output, layers) as write:
        vector = fit_vector(session, pairs, layers, method, read_pairs(reading), choice)
        write(vector)
    _check_variance(session, vector)
    accuracy = max(vector.train_accuracy)
    check_confounds(reading, accuracy)
    if not accuracy:
        session.reporter.warn(
            "no layer's direction orders a single pair that it was fitted on, so it is "
            "none of their trait: are both sides alike? see `ster pairs inspect`"
        )
    return vector


@contextmanager
def open_output(
    path: Path | None, layers: tuple[int, ...]
) -> Iterator[Callable[[SteeringVector], None]]:
    """Try where an artifact is to go; yield what writes it there, or nowhere.

    Args:
        path: The place, if there is one.
        layers: Those that the artifact may have.

    Raises:
        OutputError: It cannot be written.
    """
    if path is None:
        yield lambda _: None
        return
    with open_artifact(path, layers) as write:
        yield lambda vector: write(vector.document)


def fit_vector(
    session: Session,
    pairs: PairSet,
    layers: tuple[int, ...],
    method: str,
    rows: PairRows,
    choice: ReadingChoice = LAST_ROWS,
) -> SteeringVector:
    """Fit a direction at each layer that was read, and measure it on the same pairs.

    Args:
        session: What read the pairs.
        pairs: The pairs.
        layers: Block indices, ascending.
        method: caa, pca, logistic, logreg or pca-uncentred.
        rows: What was read at those layers.
        choice: What they are of each side.

    Raises:
        DirectionError: Nothing can be fitted to them.
    """
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
        metadata={
            "pair_count": str(len(pairs)),
            **note_norms(rows.mean_norms),
            **_template_args(session),
            **note_reading(choice, pairs),
        },
    )


def _check_variance(session: Session, vector: SteeringVector) -> None:
    """Warn where pca had no variance to find, and took the stream's first axis."""
    places = np.abs(vector.array[:, 0]) == 1
    layers = tuple(np.array(vector.layers)[places].tolist())
    if vector.method == "pca" and layers:
        session.reporter.warn(
            f"pca found nothing at {name_layers(layers)}, where the differences of "
            "these pairs do not vary: the direction there is the stream's first axis; "
            "caa and pca-uncentred find what pairs have in common"
        )


def _template_args(session: Session) -> dict[str, str]:
    """Record what the chat template was told beside the prompts, if anything."""
    told = session.choice.template_args
    return {"template_args": json.dumps(told, sort_keys=True)} if told else {}
