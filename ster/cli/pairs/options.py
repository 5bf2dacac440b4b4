"""Flags about pairs, for every command that reads them, and how they are read."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ster.cli.options import take_text
from ster.cli.streams import say
from ster.errors import UsageError
from ster.text import one_line

if TYPE_CHECKING:
    from ster.documents.pairs import PairSet

_STANDARD_INPUT = "-"
PAIR_FORMATS = (
    ".json (ster's document, CAA's, or a list of pairs), .jsonl, .csv or .tsv, or - "
    "for standard input"
)

Label = Annotated[
    str | None,
    typer.Option(
        "--label",
        metavar="<NAME>",
        help="The file is a prompt set whose label of this name has two values: "
        "prompts of one are paired with prompts of the other, at random and as many "
        "of both.",
    ),
]
PositiveValue = Annotated[
    str | None,
    typer.Option(
        "--positive",
        metavar="<VALUE>",
        help="With --label: the value of the positive sides.",
    ),
]


def check_label(label: str | None, positive: str | None) -> None:
    """Refuse one flag of a labelled set without the other.

    Raises:
        UsageError: One of them is missing.
    """
    if (label is None) != (positive is None):
        given, lacks = (
            ("--positive", "--label") if label is None else ("--label", "--positive")
        )
        raise UsageError(f"{given} needs {lacks}", field=given, expected=lacks)


def read_pairs(
    path: str, label: str | None = None, positive: str | None = None
) -> PairSet:
    """Read pairs, or pair the prompts of a labelled set and say who was left over.

    Args:
        path: The file; ``-`` is standard input.
        label: The name of the prompts' label, if it is a labelled set.
        positive: The value of the positive sides.

    Raises:
        SterError: The file is refused, or a flag is missing.
    """
    # Late, so that `ster --help` does not wait for what reads documents.
    from ster.documents.pair_sets.labelled import pair_by_label
    from ster.documents.pairs import PairSet
    from ster.documents.prompt_sets.files import read_prompt_set

    check_label(label, positive)
    if path == _STANDARD_INPUT and sys.stdin.isatty():
        what = "pairs" if label is None else "prompts"
        say(f"reading {what} from this terminal until Ctrl-D\n")
    if label is None or positive is None:
        return PairSet.load(path)
    made = pair_by_label(
        read_prompt_set(path),
        label=take_text("--label", label),
        positive=take_text("--positive", positive),
    )
    if made.left_over:
        say(f"{one_line(made.left_over)}\n")
    return PairSet(trait_name=made.positive, pairs=made.pairs)
