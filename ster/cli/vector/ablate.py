"""``ster vector ablate``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from ster.cli.answer import show
from ster.cli.model import ModelFlags, with_some_model_flags
from ster.cli.options import Text
from ster.cli.progress import open_reporter
from ster.cli.steering import load_vectors, parse_one_strength, take_whole
from ster.errors import OutputError, UsageError


def _check_directory(path: str) -> str:
    """Refuse what stands for standard output, which is no directory."""
    if path == "-":
        raise OutputError(
            "failed to write -",
            "a checkpoint is a directory, and no stream; ./- is one of that name",
            path=path,
        )
    return path


def _check_share(word: str) -> str:
    """Refuse what is no finite number, or counts in norms."""
    strength = parse_one_strength(word)
    if strength.of_norm:
        raise UsageError(
            f"an ablation takes out a share of a direction, not {strength}",
            "1 is all of what is written along it, 0.5 half",
            field="--strength",
            found=word,
        )
    return word


Vector = Annotated[
    str,
    typer.Option(
        "--vector",
        metavar="<FILE>",
        callback=take_whole("ablate", "--strength says how much of it"),
        help="The steering artifact; each of its layers loses its own direction.",
    ),
]
Share = Annotated[
    str,
    typer.Option(
        "--strength",
        metavar="<S>",
        callback=_check_share,
        help="How much of the direction is taken out: 1 is all, 0 a plain copy.",
    ),
]
Directory = Annotated[
    str,
    typer.Option(
        "--output",
        metavar="<DIR>",
        callback=_check_directory,
        help="The new checkpoint's directory. It is there when it is whole.",
    ),
]


@with_some_model_flags("model", "revision")
def ablate(
    *,
    vector_path: Vector,
    strength: Share = "1",
    output_path: Directory,
    flags: ModelFlags,
    text: Text = None,
) -> Iterator[str]:
    """Write a checkpoint that can no longer write along a vector.

    In each layer of the vector, W - s v (v'W) takes the place of o_proj and down_proj,
    v being the direction there at length 1. All other tensors, config and tokenizer are
    copied. Prints what was written.
    """
    # Late, so that `ster --help` does not wait for the array libraries.
    from ster.cli.tables.ablations import draw_ablation
    from ster.workflows.ablating import ablate as write_ablated

    ((vector, _),) = load_vectors([vector_path])
    with open_reporter() as reporter, flags.naming_variables():
        done = write_ablated(
            flags.model,
            vector,
            output_path,
            strength=parse_one_strength(strength).value,
            revision=flags.revision,
            reporter=reporter,
        )
    return show(done.document, text=text, table=partial(draw_ablation, done))
