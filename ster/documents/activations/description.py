"""What activations are, without the numbers: what a document says beside its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ster.documents.activations.read_tokens import Ints, ReadTokens
from ster.errors import DocumentError
from ster.points import RESID_POST


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Description:
    """What was read, of which model, and how.

    Args:
        layers: The block index of each entry of axis 1 of the rows, ascending.
        prompts: The prompts, verbatim.
        model: The model as it was named.
        model_revision: The revision it was read at, None where there is none.
        hidden_size: The width of the residual stream.
        points: Where in a block the rows were read: ``resid_post`` after it,
            ``resid_mid`` between its halves, ``attn_out`` and ``mlp_out`` what each
            half adds.
        read: Which tokens were read, as ``--tokens`` says it; None where the document
            does not say, as JSON never does.
        tokens: These tokens, row by row; None where the document does not say, and then
            there is one row for each prompt.
        labels: What else is known of each prompt, by name.
        precision: That of the run, None where that is not known.
        chat_template: How the prompts were encoded: applied, absent or off.
        steered: What was done to the stream while it was read, a line for each vector;
            none where it was left alone. JSON does not say.

    Raises:
        DocumentError: The parts do not fit together.
    """

    layers: tuple[int, ...]
    prompts: tuple[str, ...]
    model: str
    model_revision: str | None = None
    hidden_size: int
    points: tuple[str, ...] = (RESID_POST,)
    read: str | None = "last"
    tokens: ReadTokens | None = None
    labels: Mapping[str, Sequence[object]] = field(default_factory=dict)
    precision: str | None = None
    chat_template: str | None = None
    steered: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check once that the parts fit together."""
        if not (self.prompts and self.layers and self.hidden_size and self.num_rows):
            sentence = "activations need a prompt, a layer and a width"
            found = len(self.prompts), len(self.layers), self.hidden_size
            raise DocumentError(sentence, field="array", found=found)
        if list(self.layers) != sorted(set(self.layers)):
            sentence = "layers of activations must be ascending"
            raise DocumentError(sentence, field="layers", found=self.layers)
        if not self.points or len(set(self.points)) != len(self.points):
            sentence = "activations need points that differ"
            raise DocumentError(sentence, field="points", found=self.points)
        tokens = self.tokens
        if tokens is not None and len(tokens.num_bos) != len(self.prompts):
            raise DocumentError("read tokens are of another number of prompts")
        for name, values in self.labels.items():
            if len(values) != len(self.prompts):
                raise DocumentError(
                    f"label {name} has {len(values)} values for "
                    f"{len(self.prompts)} prompts",
                    field=name,
                )

    @property
    def num_rows(self) -> int:
        """How many rows there are in all."""
        return len(self.prompts) if self.tokens is None else len(self.tokens)

    @property
    def prompt_index(self) -> Ints:
        """Which prompt each row belongs to, (num_rows,)."""
        if self.tokens is None:
            return np.arange(len(self.prompts))
        return self.tokens.prompt_index

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of one point's rows: (num_rows, num_layers, hidden_size)."""
        return self.num_rows, len(self.layers), self.hidden_size
