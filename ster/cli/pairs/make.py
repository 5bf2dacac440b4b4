"""``ster pairs make``: a persona and its opposite, before every prompt."""

from __future__ import annotations

from typing import Annotated

import typer

from ster.cli.answer import render_beside
from ster.cli.inputs import input_file, read_prompts, take_output
from ster.cli.model import check_output
from ster.cli.options import Text, offer, take_text
from ster.errors import UsageError, check_word

# As ``personas.WAYS``, which is imported late.
_WAYS = ("prefix", "system")


def _check_way(word: str) -> str:
    """Refuse an unknown way."""
    return check_word("way of a persona", word, _WAYS, field="--as")


Positive = Annotated[
    list[str],
    typer.Option(
        "--positive",
        metavar="<TEXT>",
        help="The instruction of the positive sides; {prompt} in it is where the "
        "prompt goes, which is else behind it. Given several times, each is a wording "
        "that makes a pair of every prompt.",
    ),
]
Negative = Annotated[
    list[str],
    typer.Option(
        "--negative",
        metavar="<TEXT>",
        help="The opposite instruction: one for each --positive in their order, or one "
        "for all.",
    ),
]
Prompts = Annotated[
    str,
    typer.Option(
        "--prompts",
        metavar="<SET>",
        help="The prompts: .json, .jsonl, .csv, .tsv or .txt, or - for standard input.",
    ),
]
Way = Annotated[
    str,
    typer.Option(
        "--as",
        metavar="<WAY>",
        callback=_check_way,
        autocompletion=offer(*_WAYS),
        help="prefix puts the instruction into the user's text; system makes it the "
        "system's turn, which needs a chat template and cannot be scored.",
    ),
]
Trait = Annotated[
    str,
    typer.Option(
        "--trait",
        metavar="<NAME>",
        help="What the positive sides have; the name of the file unless given.",
    ),
]
Output = Annotated[
    str,
    typer.Option(
        "--output",
        metavar="<FILE>",
        help="Where the pairs go: .json, .jsonl, .csv or .tsv, or - for standard "
        "output. An old file is replaced only when the new one is whole.",
    ),
]


def _check_trait(trait: str, form: str) -> None:
    """Refuse a name where the file has no place for one.

    Raises:
        UsageError: It is lines of pairs, or a table.
    """
    if trait and form != "json":
        raise UsageError(
            f"--trait needs a .json output: .{form} has no place for a name",
            "what is read of it is named after the file",
            field="--trait",
            found=trait,
        )


def make(
    *,
    positive: Positive,
    negative: Negative,
    prompts_path: Prompts,
    output_path: Output,
    way: Way = "prefix",
    trait: Trait = "",
    text: Text = None,
) -> str:
    """Make pairs of two opposite instructions and a set of prompts.

    Each prompt is given both: as a prefix of the user's text, or as a system's turn.
    Prints the output's path.
    """
    # Late, so that `ster --help` does not wait for what reads documents.
    from ster.documents.formats import output_format
    from ster.documents.pair_sets.personas import make_persona_pairs, match_wordings
    from ster.documents.pair_sets.writing import FORMATS

    for_all = [take_text("--positive", word) for word in positive]
    opposite = [take_text("--negative", word) for word in negative]
    match_wordings(for_all, opposite)
    place = take_output(output_path) or output_path
    check_output(place, input_file(prompts_path))
    _check_trait(trait, output_format(place, FORMATS))
    pairs = make_persona_pairs(
        for_all,
        opposite,
        read_prompts(prompts_path, None),
        way=way,
        trait_name=take_text("--trait", trait),
    )
    pairs.save(place)
    return render_beside(place, output_path, text=text)
