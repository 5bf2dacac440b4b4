"""Flags of the commands that write text, and what is refused of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ster.cli.steering import check_strength, split_vector
from ster.errors import UsageError

if TYPE_CHECKING:
    from ster.runs.sampling import Answering


def _check_vectors(words: list[str] | None) -> list[str]:
    """Refuse what no strength is."""
    for word in words or []:
        split_vector(word)
    return words or []


Vectors = Annotated[
    list[str] | None,
    typer.Option(
        "--vector",
        metavar="<FILE[:S]>",
        callback=_check_vectors,
        help="A steering artifact to steer with, and how much of it: calm.json:4, "
        "calm.json:0.05n; 1 unless given. May be given several times: their sum.",
    ),
]
StrengthOption = Annotated[
    str,
    typer.Option(
        "--strength",
        metavar="<S>",
        callback=check_strength,
        help="How much of the vectors is added: a length in the residual stream, for "
        "a vector as it was fitted, or 0.05n, so many times each layer's own mean "
        "residual norm; negative points the other way.",
    ),
]
System = Annotated[
    str | None,
    typer.Option(
        "--system",
        metavar="<FILE>",
        help="A text file with the system's turn; needs the model's chat template.",
    ),
]
MaxNewTokens = Annotated[
    int,
    typer.Option("--max-new-tokens", metavar="<N>", help="Most tokens of an answer."),
]
Temperature = Annotated[
    float,
    typer.Option(
        "--temperature",
        metavar="<T>",
        help="0 takes the likeliest token each time; more draws at random.",
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        "--top-p",
        metavar="<P>",
        help="Draw only from the fewest likeliest tokens that have this mass.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed", metavar="<N>", min=0, help="Same seed, same device, same text."
    ),
]


def read_system(path: str | None) -> str | None:
    """Read the system's turn, if there is one."""
    from ster.documents.system import read_system_turn

    return None if path is None else read_system_turn(path)


def check_drawn(how: Answering) -> None:
    """Refuse a share of tokens to draw from, where none are drawn.

    Raises:
        UsageError: There is one.
    """
    if how.sampling.top_p is not None and how.sampling.temperature <= 0:
        raise UsageError(
            "--top-p needs --temperature above 0",
            "at 0 the likeliest token is taken each time, and none is drawn",
            field="--top-p",
            found=how.sampling.top_p,
        )
