"""``ster vector``: directions from contrastive pairs, and what they are worth."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from ster.cli import tables
from ster.cli.answer import render_beside, show, show_beside
from ster.cli.model import ModelFlags, check_output, with_model_flags
from ster.cli.options import Command, Group, Layers, Text
from ster.cli.steering import split_vector
from ster.errors import DocumentError, UsageError
from ster.text import one_line
from ster.vectors.methods import parse_method
from ster.vectors.strengths import StrengthTrial, parse_strengths

vector_app = typer.Typer(cls=Group, rich_markup_mode=None)


def _check_strength_words(text: str | None) -> str | None:
    """Refuse what is no list of numbers."""
    if text is not None:
        parse_strengths(text)
    return text


def _check_vector(word: str) -> str:
    """Refuse a vector with a strength of its own."""
    try:
        path, strength = split_vector(word)
    except UsageError:  # then it is a path that is not there
        return word
    if strength is not None:
        raise UsageError(
            f"`evaluate` takes one vector as it is, without :{strength}",
            f"--vector {one_line(path)} --strengths {strength} measures it so",
            field="--vector",
            found=word,
        )
    return word


Pairs = Annotated[
    str,
    typer.Option(
        "--pairs",
        metavar="<FILE>",
        help='The pairs: a JSON document {"trait_name": "...", "pairs": [{"positive": '
        '"...", "negative": "..."}, ...]}. A pair may have a "prompt", which both '
        "texts answer.",
    ),
]
Output = Annotated[
    str,
    typer.Option(
        "--output",
        metavar="<FILE>",
        help="Where the steering artifact goes: .json, .safetensors, .npz, or .gguf "
        "for llama.cpp. An old file is replaced only when the new one is whole.",
    ),
]
Vector = Annotated[
    str,
    typer.Option(
        "--vector",
        metavar="<FILE>",
        callback=_check_vector,
        help="The steering artifact.",
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="<METHOD>",
        callback=parse_method,
        help="How a direction is fitted: caa (or mean-difference), pca, or logistic "
        "(or probe).",
    ),
]
Holdout = Annotated[
    float,
    typer.Option(
        "--holdout",
        metavar="<SHARE>",
        help="The share of pairs, from the end of the file, that candidates are ranked "
        "on.",
    ),
]
Strengths = Annotated[
    str | None,
    typer.Option(
        "--strengths",
        metavar="<S,S,...>",
        callback=_check_strength_words,
        help="Measure what steering at these strengths does to the sides' "
        "log-probabilities, such as -4,-2,2,4. 0.05n is 0.05 times each layer's own "
        "mean residual norm; the report says it.",
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch-size",
        metavar="<N>",
        help="Responses that are scored together; as many as memory allows unless "
        "given.",
    ),
]
MaxSequence = Annotated[
    int | None,
    typer.Option(
        "--max-sequence",
        metavar="<N>",
        help="Leave out pairs with a side of more tokens; none unless given.",
    ),
]
Artifact = Annotated[
    str, typer.Argument(metavar="ARTIFACT", help="The steering artifact.")
]


ExportedLayers = Annotated[
    str,
    typer.Option(
        "--layers",
        metavar="<LAYERS>",
        help="Which of its layers to write: all, or indices and half-open ranges.",
    ),
]


@vector_app.callback()
def vector(*, text: Text = None) -> None:
    """Fit directions to contrastive pairs, choose and measure them."""


@vector_app.command(
    "train",
    cls=Command,
    epilog="\b\nExample:\n"
    "  ster vector train --model toy --pairs pairs.json --output calm.json",
)
@with_model_flags
def train(
    *,
    pairs_path: Pairs,
    output_path: Output,
    flags: ModelFlags,
    layers: Layers = "all",
    method: Method = "caa",
    text: Text = None,
) -> Iterator[str]:
    """Fit a direction at every chosen layer.

    Writes the directions as a steering artifact, and prints what it holds, with
    accuracy and margin on the pairs that they were fitted on.
    """
    # Late, here and below, so that `ster --help` does not wait for the array libraries.
    from ster.documents.pairs import PairSet
    from ster.documents.steering import check_suffix

    flags.check_device()
    check_output(output_path, [pairs_path])
    check_suffix(output_path)
    pairs = PairSet.load(pairs_path)
    with flags.open(layers, output_path) as runtime:
        vector = runtime.train(pairs, method=method, layers=layers, output=output_path)
    summary = {"artifact": vector.summary, "chat_template": runtime.chat_template}
    table = partial(tables.summary, vector)
    return show_beside(output_path, summary, text=text, table=table)


@vector_app.command(
    "optimize",
    cls=Command,
    epilog="\b\nExample:\n"
    "  ster vector optimize --model toy --pairs pairs.json --output calm.json",
)
@with_model_flags
def optimize(
    *,
    pairs_path: Pairs,
    output_path: Output,
    flags: ModelFlags,
    layers: Layers = "all",
    holdout: Holdout = 0.2,
    text: Text = None,
) -> Iterator[str]:
    """Choose method and layer on held-out pairs.

    Fits the best candidate again on all pairs, writes it as a steering artifact, and
    prints what it holds and how every candidate did, beside random directions.
    """
    from ster.documents.pairs import PairSet
    from ster.documents.steering import check_suffix
    from ster.workflows.choosing import check_holdout, split_pairs

    flags.check_device()
    check_holdout(holdout)
    check_output(output_path, [pairs_path])
    check_suffix(output_path)
    pairs = PairSet.load(pairs_path)
    split_pairs(len(pairs), holdout)
    with flags.open(layers, output_path) as runtime:
        selection = runtime.optimize(
            pairs, layers=layers, holdout=holdout, output=output_path
        )
    artifact = selection.vector.summary
    summary = {"artifact": artifact, "chat_template": runtime.chat_template}
    report = {**summary, "selection": selection.document}
    table = partial(tables.selection, selection)
    return show_beside(output_path, report, text=text, table=table)


@vector_app.command(
    "evaluate",
    cls=Command,
    epilog="\b\nExample:\n"
    "  ster vector evaluate --model toy --pairs pairs.json --vector calm.json",
)
@with_model_flags
def evaluate(
    *,
    pairs_path: Pairs,
    vector_path: Vector,
    flags: ModelFlags,
    strengths: Strengths = None,
    batch_size: BatchSize = None,
    max_sequence: MaxSequence = None,
    text: Text = None,
) -> Iterator[str]:
    """Measure how a vector tells pairs apart.

    Prints, for each of its layers, how often the positive side scores higher and by how
    much; with --strengths also what steering does to the sides. Writes nothing.
    """
    from ster.documents.pairs import PairSet
    from ster.vectors.steering import SteeringVector

    flags.check_device()
    trial = read_trial(strengths, batch_size, max_sequence)
    pairs = PairSet.load(pairs_path)
    vector = SteeringVector.load(vector_path)
    with flags.open() as runtime:
        evaluation = runtime.evaluate(pairs, vector, trial)
    table = partial(tables.evaluation, evaluation)
    return show(evaluation.document, text=text, table=table)


@vector_app.command(
    "inspect",
    cls=Command,
    epilog="\b\nExample:\n  ster vector inspect calm.json",
)
def inspect(*, artifact: Artifact, text: Text = None) -> Iterator[str]:
    """Show what a steering artifact holds."""
    from ster.vectors.steering import SteeringVector

    try:
        vector = SteeringVector.load(artifact)
    except DocumentError as error:
        raise DocumentError(f"failed to inspect {artifact}", error) from error
    table = partial(tables.summary, vector)
    return show({"artifact": vector.summary}, text=text, table=table)


@vector_app.command(
    "export",
    cls=Command,
    epilog="\b\nExample:\n"
    "  ster vector export calm.json --output calm.gguf --layers 1..30",
)
def export(
    *,
    artifact: Artifact,
    output_path: Output,
    layers: ExportedLayers = "all",
    text: Text = None,
) -> str:
    """Write a steering artifact in another format.

    The suffix of the output says which: .json, .safetensors, .npz, or .gguf, a control
    vector for llama.cpp, which has no place for layer 0. Prints the output's path.
    """
    from ster.documents.steering import check_suffix
    from ster.vectors.some_layers import take_layers
    from ster.vectors.steering import SteeringVector

    check_output(output_path, [artifact])
    check_suffix(output_path)
    vector = take_layers(SteeringVector.load(artifact), layers)
    vector.save(output_path)
    return render_beside(output_path, output_path, text=text)


def read_trial(
    strengths: str | None, batch_size: int | None, max_sequence: int | None
) -> StrengthTrial | None:
    """Refuse what cannot be measured, before any file is read."""
    if strengths is None:
        return None
    return StrengthTrial.of(strengths, batch_size=batch_size, max_sequence=max_sequence)
