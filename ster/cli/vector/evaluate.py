"""``ster vector evaluate``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ster.cli.answer import show
from ster.cli.applying import ApplyingFlags, with_applying_flags
from ster.cli.model import ModelFlags, with_model_flags
from ster.cli.options import Text, TrainedRole, TrainedTokens
from ster.cli.pairs.options import Label, PositiveValue, check_label, read_pairs
from ster.cli.tables.evaluations import draw_evaluation
from ster.cli.vector.options import (
    BatchSize,
    MaxDamage,
    MaxSequence,
    Pairs,
    RandomDirections,
    Strengths,
    Vector,
)
from ster.errors import UsageError
from ster.vectors.applying import ADDING, Applying
from ster.vectors.trials import StrengthTrial


@with_model_flags
@with_applying_flags
def evaluate(
    *,
    pairs_path: Pairs,
    vector_path: Vector,
    flags: ModelFlags,
    label: Label = None,
    positive: PositiveValue = None,
    strengths: Strengths = None,
    applied: ApplyingFlags,
    batch_size: BatchSize = None,
    max_sequence: MaxSequence = None,
    random_directions: RandomDirections = None,
    max_damage: MaxDamage = None,
    tokens: TrainedTokens = None,
    role: TrainedRole = None,
    text: Text = None,
) -> Iterator[str]:
    """Measure how a vector tells pairs apart.

    Prints, for each of its layers, how often the positive side scores higher and by how
    much; with --strengths also what steering does to the sides. Writes nothing.
    """
    from ster.vectors.steering import SteeringVector

    how = {
        "batch_size": batch_size,
        "max_sequence": max_sequence,
        "random_directions": random_directions,
        "max_damage": max_damage,
    }
    given = {name: value for name, value in how.items() if value is not None}
    check_label(label, positive)
    applying = applied.take()
    if strengths is None:
        applied.refuse_without("--strengths")
    flags.check_device()
    trial = read_trial(strengths, given, applying)
    pairs = read_pairs(pairs_path, label, positive)
    vector = SteeringVector.load(vector_path)
    with flags.open() as runtime:
        evaluation = runtime.evaluate(pairs, vector, trial, tokens=tokens, role=role)
    table = partial(draw_evaluation, evaluation)
    return show(evaluation.document, text=text, table=table)


def read_trial(
    strengths: str | None,
    given: Mapping[str, int | float],
    applying: Applying = ADDING,
) -> StrengthTrial | None:
    """Refuse what cannot be measured, before any file is read.

    Args:
        strengths: A comma list, if any are to be measured.
        given: What else was given of a trial, by its name in one.
        applying: How the vector is applied.

    Raises:
        UsageError: There is no trial that would read it.
        DirectionError: A strength or a number is refused.
    """
    if strengths is not None:
        how: dict[str, Any] = {**given}
        return StrengthTrial.of(strengths, applying=applying, **how)
    for name in given:
        flag = f"--{name.replace('_', '-')}"
        raise UsageError(f"{flag} needs --strengths", field=flag)
    return None
