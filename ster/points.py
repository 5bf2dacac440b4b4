"""Where a block can be read, and the ``--points`` grammar. Names and text only.

``decoder.contract.Points`` says what each point is, docs/points.md draws them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ster.errors import UsageError, check_word
from ster.text import trim

RESID_POST = "resid_post"
RESID_MID = "resid_mid"
ATTN_OUT = "attn_out"
MLP_OUT = "mlp_out"
POINTS = (RESID_POST, RESID_MID, ATTN_OUT, MLP_OUT)

_NAMES = f"{', '.join(POINTS[:-1])}, or {POINTS[-1]}"


def select_points(points: str | Iterable[str]) -> tuple[str, ...]:
    """Read a selection of points: a ``--points`` value, or names.

    Raises:
        UsageError: As for ``parse_points`` and ``check_points``.
    """
    return parse_points(points) if isinstance(points, str) else check_points(points)


def parse_points(text: str) -> tuple[str, ...]:
    """Read a ``--points`` value: a comma list of names.

    Args:
        text: Such as ``resid_post, attn_out``. White space around a name and empty
            names are ignored.

    Returns:
        The points in the order of the list, each once.

    Raises:
        UsageError: A name is unknown, or there is none.
    """
    return check_points(name for part in text.split(",") if (name := trim(part)))


def check_points(points: Iterable[str]) -> tuple[str, ...]:
    """Refuse what is no point; order stays, and repetitions go.

    Raises:
        UsageError: A name is unknown, or there is none.
    """
    given: object = points
    if not isinstance(given, Iterable):
        raise UsageError(
            f"points must be names, not {given}; expected {_NAMES}",
            field="points",
            found=given,
            expected=POINTS,
        )
    chosen: dict[str, None] = {}
    for point in points:
        chosen[check_word("point", point, POINTS, field="points")] = None
    if not chosen:
        sentence = f"no points selected; expected {_NAMES}"
        raise UsageError(sentence, field="points", expected=POINTS)
    return tuple(chosen)


def inner_points(points: Iterable[str]) -> frozenset[str]:
    """Keep the points that lie inside a block: all but the stream that it returns."""
    return frozenset(points) - {RESID_POST}
