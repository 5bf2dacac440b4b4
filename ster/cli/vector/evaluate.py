"""``ster vector evaluate``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ster.cli.answer import show
from ster.cli.applying import ApplyingFlags, with_applying_flags
from ster.cli.model import ModelFlags, with_model_flags
from ster.cli.options import Text, TrainedRole, TrainedTokens
from ster.cli.pairs.options import Label, PositiveValue, check_label, read_pairs
from ster.cli.tables.evaluations import draw_evaluation
from ster.cli.vector.options import BatchSize, MaxSequence, Pairs, Strengths, Vector
from ster.errors import UsageError
from ster.vectors.applying import ADDING, Applying
from ster.vectors.measured import StrengthTrial


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
    tokens: TrainedTokens = None,
    role: TrainedRole = None,
    text: Text = None,
) -> Iterator[str]:
    """Measure how a vector tells pairs apart.

    Prints, for each of its layers, how often the positive side scores higher and by how
    much; with --strengths also what steering does to the sides. Writes nothing.
    """
    from ster.vectors.steering import SteeringVector

    check_trial_flags(strengths, batch_size, max_sequence)
    check_label(label, positive)
    if strengths is None:
        applied.refuse_without("--strengths")
    applying = applied.take()
    flags.check_device()
    trial = read_trial(strengths, batch_size, max_sequence, applying)
    pairs = read_pairs(pairs_path, label, positive)
    vector = SteeringVector.load(vector_path)
    with flags.open() as runtime:
        evaluation = runtime.evaluate(pairs, vector, trial, tokens=tokens, role=role)
    table = partial(draw_evaluation, evaluation)
    return show(evaluation.document, text=text, table=table)


def check_trial_flags(
    strengths: str | None, batch_size: int | None, max_sequence: int | None
) -> None:
    """Refuse flags that only a trial of strengths reads, where there is none."""
    given = {"--batch-size": batch_size, "--max-sequence": max_sequence}
    for flag, value in given.items():
        if strengths is None and value is not None:
            raise UsageError(f"{flag} needs --strengths", field=flag)


def read_trial(
    strengths: str | None,
    batch_size: int | None,
    max_sequence: int | None,
    applying: Applying = ADDING,
) -> StrengthTrial | None:
    """Refuse what cannot be measured, before any file is read."""
    if strengths is None:
        return None
    return StrengthTrial.of(
        strengths,
        batch_size=batch_size,
        max_sequence=max_sequence,
        applying=applying,
    )
