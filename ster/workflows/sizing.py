"""Reading pairs once, and fitting directions on more and more of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ster.documents.pairs import PairSet
from ster.errors import require_number, require_type
from ster.runs.reading import LAST_ROWS, ReadingChoice
from ster.runs.session import Session
from ster.text import counted
from ster.vectors.learning_curves import (
    LearningCurve,
    check_sizes,
    check_sizes_fit,
    measure_sizes,
)
from ster.vectors.methods import parse_method
from ster.workflows.choosing import split_pairs
from ster.workflows.pairs import plan_pairs, read_pairs


def measure_curve(
    session: Session,
    pairs: PairSet,
    layers: tuple[int, ...],
    *,
    sizes: Iterable[int],
    method: str = "caa",
    holdout: float = 0.2,
    choice: ReadingChoice = LAST_ROWS,
) -> LearningCurve:
    """Fit a method on the first pairs, so many as each size says; measure on the last.

    Args:
        session: What reads the pairs.
        pairs: The pairs; the last ones are held out, the same for all sizes.
        layers: Block indices, ascending.
        sizes: How many pairs to fit on.
        method: How directions are fitted.
        holdout: The share of pairs that is held out.
        choice: What is read of each side.

    Raises:
        SterError: A word or a side is refused, a size is more than there are pairs to
            fit on, the run does not fit, or nothing can be fitted.
    """
    require_type(pairs, PairSet, "pairs")
    method = parse_method(method)
    taken = check_sizes(sizes)
    num_fit = check_split(len(pairs), require_number(holdout, "holdout"), taken)
    reading = plan_pairs(session, pairs, layers, repeats=True, choice=choice)
    rows = read_pairs(reading)
    num_held = len(pairs) - num_fit
    _say(session, method, taken, num_held)
    return LearningCurve(
        trait_name=pairs.trait_name,
        method=method,
        chat_template=session.encoder.chat_template,
        points=measure_sizes(method, layers, taken, rows[:num_fit], rows[num_fit:]),
        fraction=holdout,
        num_fit=num_fit,
        num_holdout=num_held,
    )


def check_split(num_pairs: int, holdout: float, sizes: Sequence[int]) -> int:
    """Return how many pairs may be fitted on.

    Raises:
        DirectionError: The share leaves too few pairs, or a size is more than these.
    """
    num_fit = split_pairs(num_pairs, holdout)
    check_sizes_fit(sizes, num_fit, num_pairs - num_fit)
    return num_fit


def _say(session: Session, method: str, sizes: Sequence[int], num_held: int) -> None:
    session.reporter.note(
        f"fitting {method} on {counted(len(sizes), 'number')} of pairs and measuring "
        f"each on {counted(num_held, 'held-out pair')}"
    )
    if num_held == 1:
        session.reporter.note(
            "one held-out pair makes every accuracy 0 or 1, which tells sizes hardly "
            "apart; hold out more"
        )
