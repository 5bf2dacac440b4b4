"""Flags of the commands on steering vectors."""

from __future__ import annotations

from typing import Annotated

import typer

from ster.cli.options import offer
from ster.cli.pairs.options import PAIR_FORMATS
from ster.cli.steering import parse_one_strength, take_whole
from ster.errors import check_word
from ster.vectors.methods import parse_method
from ster.vectors.rules import RULES
from ster.vectors.strengths import parse_strengths, take_share


def _check_strength_words(text: str | None) -> str | None:
    """Refuse what is no list of numbers."""
    if text is not None:
        parse_strengths(text)
    return text


def _check_rule(word: str | None) -> str | None:
    """Refuse what is no rule."""
    return None if word is None else check_word("rule", word, RULES, field="--by")


def _check_share(word: str | None) -> str | None:
    """Refuse what is no positive share of norms."""
    if word is not None:
        take_share(parse_one_strength(word))
    return word


Pairs = Annotated[
    str,
    typer.Option(
        "--pairs",
        metavar="<FILE>",
        help=f"The pairs: {PAIR_FORMATS}. A pair has a positive and a negative text, "
        "and may have a prompt, which both answer.",
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
        callback=take_whole("evaluate", "--strengths measures it so"),
        help="The steering artifact.",
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="<METHOD>",
        callback=parse_method,
        help="How a direction is fitted: caa (or mean-difference), pca, logistic "
        "(or probe), logreg, or pca-uncentred.",
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
RankedHoldout = Annotated[
    float | None,
    typer.Option(
        "--holdout",
        metavar="<SHARE>",
        help="By accuracy, which it implies: the share of pairs, from the end of the "
        "file, that candidates are ranked on; 0.2 unless given.",
    ),
]
Rule = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="<RULE>",
        callback=_check_rule,
        autocompletion=offer(*RULES),
        help="What decides: effect, what steering does to pairs that were not fitted "
        "on; or accuracy, how held-out pairs are ordered. effect unless --holdout is "
        "given.",
    ),
]
Share = Annotated[
    str | None,
    typer.Option(
        "--strength",
        metavar="<Sn>",
        callback=_check_share,
        help="By effect: what every candidate steers with, plus and minus, as a share "
        "of its layer's own norm; 0.1n unless given.",
    ),
]
PartSeed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="<N>",
        min=0,
        help="By effect: decides which pairs are fitted on; 0 unless given.",
    ),
]
WriteAnyway = Annotated[
    bool,
    typer.Option(
        "--write-anyway",
        help="By effect: write the artifact though its direction steers the wrong way "
        "or no better than random ones.",
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
RandomDirections = Annotated[
    int | None,
    typer.Option(
        "--random-directions",
        metavar="<N>",
        help="Copies of the vector, turned at random, that are measured beside it; 10 "
        "unless given, 0 is none.",
    ),
]
MaxDamage = Annotated[
    float | None,
    typer.Option(
        "--max-damage",
        metavar="<NATS>",
        help="What a chosen strength may take of log p per token of neutral answers; "
        "0.5 unless given.",
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
