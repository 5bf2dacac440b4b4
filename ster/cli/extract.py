"""``ster extract``: prompts in, a document of activations out."""

from __future__ import annotations

from typing import Annotated

import typer

from ster.cli.answer import render_beside
from ster.cli.inputs import FORMATS, input_file, read_prompts, take_output, take_prompts
from ster.cli.model import ModelFlags, check_output, with_model_flags
from ster.cli.options import Layers, Role, Text, TokensOption
from ster.errors import UsageError, check_word
from ster.points import parse_points
from ster.token_choice import parse_tokens


def _check_points(words: str) -> str:
    """Refuse what is no point of a block."""
    parse_points(words)
    return words


def _check_store(word: str) -> str:
    """Refuse what is no width."""
    return check_word("store", word, ("f32", "f16"))


Input = Annotated[
    str | None,
    typer.Option("--input", metavar="<FILE>", help=f"The prompts: {FORMATS}."),
]
Prompt = Annotated[
    list[str] | None,
    typer.Option(
        "--prompt",
        metavar="<TEXT>",
        callback=take_prompts,
        help="A prompt, instead of --input; may be given several times.",
    ),
]
Output = Annotated[
    str,
    typer.Option(
        "--output",
        metavar="<FILE>",
        callback=take_output,
        help="Where the activations go: .json, for one row a prompt, .safetensors or "
        ".npz, or - for standard output. An old file is replaced only when the new one "
        "is whole.",
    ),
]
PointsOption = Annotated[
    str,
    typer.Option(
        "--points",
        metavar="<POINTS>",
        callback=_check_points,
        help="Where in a block: resid_post, after it; resid_mid, between its halves; "
        "attn_out and mlp_out, what each half adds. A comma list.",
    ),
]
Store = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="<WIDTH>",
        callback=_check_store,
        help="The width of the numbers in .safetensors and .npz: f32, or f16 for half "
        "the bytes.",
    ),
]


@with_model_flags
def extract(
    *,
    input_path: Input = None,
    prompt: Prompt = None,
    output_path: Output,
    flags: ModelFlags,
    layers: Layers = "all",
    tokens: TokensOption = "last",
    points: PointsOption = "resid_post",
    role: Role = "user",
    store: Store = "f32",
    text: Text = None,
) -> str:
    """Write the residual stream of prompts: at the last token of each, or at others.

    It is read after each chosen block, 0 being the first, and never after the final
    norm. Prints the path of the document.
    """
    # Late, so that `ster --help` does not wait for the array libraries.
    from ster.documents.activations.files import check_suffix

    if (input_path is None) == (not prompt):
        raise UsageError("give either --input or --prompt")
    flags.check_device()
    check_output(output_path, input_file(input_path))
    check_suffix(
        output_path,
        points=parse_points(points),
        one_row=parse_tokens(tokens).may_be_one,
        store=store,
    )
    prompts = read_prompts(input_path, prompt)
    with flags.open(layers, output_path) as runtime:
        runtime.write_activations(
            prompts,
            output_path,
            layers=layers,
            tokens=tokens,
            points=points,
            role=role,
            store=store,
        )
    return render_beside(output_path, output_path, text=text)
