"""A text whose tokens are coloured by how far they lie along a vector."""

from __future__ import annotations

import html
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ster.documents.activations.value import Activations
from ster.errors import DocumentError, LayerError, require_type
from ster.layers import name_layers
from ster.plots.projecting import judged_rows, rows_of, visible
from ster.text import counted, printable
from ster.vectors.some_layers import take_layers
from ster.vectors.steering import SteeringVector

F64 = npt.NDArray[np.float64]

# Okabe and Ito's blue and vermillion; half transparent over any background, so that the
# page's own letters stay readable.
_POSITIVE = "213, 94, 0"
_NEGATIVE = "0, 114, 178"
_DEEPEST = 0.6
_SHOWN = 2000
_BOX = "font-family: monospace; line-height: 1.9; color: inherit; max-width: 60em"
_TOKEN = "padding: 0.1em 0.05em; border-bottom: 2px {} currentColor"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ProjectedText:
    """Tokens and their projections, which a notebook shows as a coloured text.

    Vermillion, with a solid line below, is along the direction; blue, with a dotted
    line, is against it. A token's number shows when the pointer rests on it.

    Args:
        tokens: The text of each token.
        values: Its projection on the unit direction, (num_tokens,).
        scale: The size of projection that has the deepest colour.
        layer: The layer of the direction.
        trait_name: What it points towards.
    """

    tokens: tuple[str, ...]
    values: F64
    scale: float
    layer: int
    trait_name: str

    def __repr__(self) -> str:
        """Show what it is, not the text."""
        ends = f"{self.values.min():.4g} to {self.values.max():.4g}"
        tokens = counted(len(self.tokens), "token")
        name = repr(self.trait_name)
        return f"ProjectedText({name}, layer {self.layer}, {tokens}, {ends})"

    def _repr_html_(self) -> str:
        pairs = zip(self.tokens[:_SHOWN], self.values.tolist(), strict=False)
        spans = "".join(self._span(token, value) for token, value in pairs)
        more = len(self.tokens) - _SHOWN
        rest = f" … {counted(more, 'more token')}" if more > 0 else ""
        return f'<div class="ster" style="{_BOX}">{self._legend()}{spans}{rest}</div>'

    def _span(self, token: str, value: float) -> str:
        colour = _POSITIVE if value > 0 else _NEGATIVE
        depth = _DEEPEST * min(1.0, abs(value) / self.scale) if self.scale else 0.0
        line = "solid" if value > 0 else "dotted"
        # Faint values have a faint line, too: their sign hardly matters.
        style = _TOKEN.format(line) if depth > _DEEPEST / 4 else _TOKEN.format("hidden")
        words = html.escape(printable(visible(token)))
        broken = words.replace("↵", "↵<br>") if "\n" in token else words
        return (
            f'<span title="{value:+.4g}" style="background: rgba({colour}, '
            f'{depth:.2f}); {style}">{broken}</span><wbr>'
        )

    def _legend(self) -> str:
        name = html.escape(printable(self.trait_name)) or "the direction"
        ends = f"rgba({_NEGATIVE}, {_DEEPEST}), transparent, "
        ends += f"rgba({_POSITIVE}, {_DEEPEST})"
        bar = (
            "display: inline-block; width: 8em; height: 0.8em; margin: 0 0.5em; "
            f"background: linear-gradient(to right, {ends})"
        )
        return (
            f'<div style="opacity: 0.8">projection on {name}, layer {self.layer}: '
            f'{-self.scale:.3g}<span style="{bar}"></span>{self.scale:+.3g} '
            "(dotted: against, solid: along)</div>"
        )


def projected_text(
    activations: Activations,
    vector: SteeringVector,
    layer: int | None = None,
    *,
    prompt: int = 0,
) -> ProjectedText:
    """Colour the tokens of a prompt by their projection on the unit direction.

    The deepest colour stands for the largest projection among the tokens of the text
    itself but for a sequence's first: it and those of a template often lie far off.

    Args:
        activations: The rows, read at all tokens of the prompt.
        vector: The directions.
        layer: A layer of the vector; not needed where it has one.
        prompt: Which prompt, counted from 0.

    Raises:
        DocumentError: It is not known which tokens the rows are, there is no such
            prompt, or activations and vector are of different models.
        LayerError: The vector or the activations lack this layer, or it is not said.
    """
    require_type(activations, Activations, "activations")
    require_type(vector, SteeringVector, "vector")
    layer = _choose_layer(vector, layer)
    tokens = activations.tokens
    if tokens is None:
        raise DocumentError(
            "these activations do not say which tokens their rows are",
            'runtime.activations(texts, tokens="all") does',
            field="tokens",
        )
    rows = rows_of(activations, prompt)
    # The layer alone, so that the activations need no other.
    values = take_layers(vector, layer).project(activations[rows])[:, 0]
    return ProjectedText(
        tokens=tuple(tokens.text[row] for row in rows),
        values=values,
        scale=float(np.abs(values[judged_rows(activations, rows)]).max()),
        layer=layer,
        trait_name=vector.trait_name,
    )


def _choose_layer(vector: SteeringVector, layer: int | None) -> int:
    if layer is not None:
        vector.direction(layer)  # refuses a layer that is not there
        return layer
    if len(vector.layers) > 1:
        raise LayerError(
            f"which layer of the vector? it has {name_layers(vector.layers)}",
            field="layer",
            expected=vector.layers,
        )
    return vector.layers[0]
