"""What documents show of themselves in a notebook: facts, and the first few texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ster.html import MAX_ROWS, Card, Table
from ster.layers import abridge
from ster.text import counted

if TYPE_CHECKING:
    from ster.documents.activations.shown import ShownTokens
    from ster.documents.activations.value import Activations
    from ster.documents.pairs import PairSet
    from ster.documents.prompt_sets.value import PromptSet

_MAX_LABELS = 3
_MAX_TOKENS = 5


def pair_card(pairs: PairSet) -> Card:
    """Show the trait and the first pairs."""
    first = pairs.pairs[:MAX_ROWS]
    asked = any(pair.prompt is not None for pair in pairs)
    header = ["prompt"] if asked else []
    rows = [
        [*([pair.prompt or ""] if asked else []), pair.positive, pair.negative]
        for pair in first
    ]
    table = Table(
        header=[*header, "positive", "negative"],
        rows=rows,
        num_rows=len(pairs),
        noun="pair",
    )
    name = f" {pairs.trait_name!r}" if pairs.trait_name else ""
    title = f"PairSet{name}: {counted(len(pairs), 'pair')}"
    return Card(title=title, tables=[table])


def prompt_card(prompts: PromptSet) -> Card:
    """Show the first prompts, with their first labels."""
    labels = [*prompts.labels.items()][:_MAX_LABELS]
    chats = sum(chat is not None for chat in prompts.chats or ())
    table = Table(
        header=["prompt", *(name for name, _ in labels)],
        rows=[
            [prompt, *(values[index] for _, values in labels)]
            for index, prompt in enumerate(prompts.prompts[:MAX_ROWS])
        ],
        num_rows=len(prompts),
        noun="prompt",
    )
    return Card(
        title=f"PromptSet: {counted(len(prompts), 'prompt')}",
        facts=[
            ("chats", chats or None),
            ("labels", ", ".join(prompts.labels) or None),
        ],
        tables=[table],
    )


def shown_card(shown: ShownTokens) -> Card:
    """Show the tokens of a text, those that are read in bold; a long text is cut."""
    rows = shown.shown_rows
    table = Table(
        header=["", "position", "id", "text", "from"],
        rows=rows,
        marked=[index for index, row in enumerate(rows) if row[0]],
    )
    return Card(title=shown.summary, tables=[table])


def activation_card(activations: Activations) -> Card:
    """Show what was read of which model, and the first prompts.

    Numbers are not looked at: there may be gigabytes of them.
    """
    shape = " × ".join(map(str, activations.shape))
    size = activations.array.nbytes * len(activations.points) / 1e6
    return Card(
        title=f"Activations: {counted(len(activations), 'row')} of "
        f"{counted(len(activations.prompts), 'prompt')}",
        facts=[
            ("model", activations.model),
            ("revision", activations.model_revision),
            ("layers", abridge(activations.layers)),
            ("tokens", activations.read),
            ("points", ", ".join(activations.points)),
            ("rows × layers × hidden size", f"{shape}, {size:.3g} MB"),
            ("precision", activations.precision),
            ("chat template", activations.chat_template),
            ("labels", ", ".join(activations.labels) or None),
            ("steered by", ", ".join(activations.steered) or None),
        ],
        tables=[_prompts(activations)],
    )


def _prompts(activations: Activations) -> Table:
    labels = [*activations.labels.items()][:_MAX_LABELS]
    tokens = activations.tokens
    rows = []
    for index, prompt in enumerate(activations.prompts[:MAX_ROWS]):
        row: list[object] = [prompt, *(values[index] for _, values in labels)]
        if tokens is not None:
            read = (activations.prompt_index == index).nonzero()[0]
            texts = [repr(tokens.text[each]) for each in read[:_MAX_TOKENS]]
            row.append(" ".join(texts) + (" …" if len(read) > _MAX_TOKENS else ""))
        rows.append(row)
    read_at = [] if tokens is None else ["read at"]
    return Table(
        header=["prompt", *(name for name, _ in labels), *read_at],
        rows=rows,
        num_rows=len(activations.prompts),
        noun="prompt",
    )
