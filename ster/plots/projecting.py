"""How far each token lies along a vector, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ster.documents.activations.value import Activations
from ster.errors import DocumentError, require_type
from ster.plots.styles import plain, take_axes
from ster.vectors.steering import SteeringVector

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# More names than these would lie on each other.
_MAX_NAMES = 60
# Where a colour bar is pointed: values lie below it, above it.
_EXTEND = {
    (False, False): "neither",
    (True, False): "min",
    (False, True): "max",
    (True, True): "both",
}


def projections(
    activations: Activations,
    vector: SteeringVector,
    *,
    prompt: int | None = None,
    cosine: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw the projection of each token on the vector's unit direction, by layer.

    Brighter is further along. On the colour bar a line marks zero. The colours span
    the tokens of the text itself but for a sequence's first: it and a template's often
    lie so far off that nothing else would differ. What lies beyond has the last colour,
    and the bar ends in a point.

    Args:
        activations: The rows, read at all tokens or at some; with the vector's layers.
        vector: The directions.
        prompt: Which prompt's tokens to draw, counted from 0. If not given, the first;
            or, where one token of each prompt was read, all prompts.
        cosine: Divide by the length of the row, which grows from layer to layer.
        ax: Where to draw; a new figure if not given.

    Raises:
        DocumentError: There is no such prompt, or activations and vector are of
            different models.
        LayerError: The activations lack a layer of the vector.
        SterError: matplotlib is not installed.
    """
    require_type(activations, Activations, "activations")
    require_type(vector, SteeringVector, "vector")
    rows, names, title = choose_rows(activations, prompt)
    chosen = activations[rows]
    table = vector.project(chosen)
    if cosine:
        places = [activations.layers.index(layer) for layer in vector.layers]
        lengths = chosen.norms()[:, places].astype(np.float64)
        table = table / np.where(lengths == 0, 1, lengths)
    ax = take_axes(ax)
    judged = table[judged_rows(activations, rows)]
    low, high = float(judged.min()), float(judged.max())
    mesh = ax.pcolormesh(table.T, cmap="cividis", vmin=low, vmax=high)
    figure = ax.get_figure()
    if figure is not None:
        beyond = table.min() < low, table.max() > high
        bar = figure.colorbar(mesh, ax=ax, extend=_EXTEND[beyond])
        what = "cosine with" if cosine else "projection on"
        bar.set_label(f"{what} {plain(vector.trait_name) or 'the vector'}")
        if low < 0 < high:
            bar.ax.axhline(0, color="white", lw=1.5)
    step = -(-len(names) // _MAX_NAMES)
    ax.set_xticks(np.arange(0, len(names), step) + 0.5)
    ax.set_xticklabels(
        names[::step], rotation=90 if len("".join(names)) > 60 else 0, fontsize="small"
    )
    shown = range(0, len(vector.layers), -(-len(vector.layers) // _MAX_NAMES))
    ax.set_yticks([each + 0.5 for each in shown])
    ax.set_yticklabels([str(vector.layers[each]) for each in shown], fontsize="small")
    ax.set_xlabel(title)
    ax.set_ylabel("layer (block index)")
    return ax


def choose_rows(
    activations: Activations, prompt: int | None
) -> tuple[npt.NDArray[np.int64], list[str], str]:
    """Choose the rows of one prompt, or all where each prompt has one.

    Returns:
        The rows, a name of each, and what they are together.

    Raises:
        DocumentError: There is no such prompt.
    """
    num_prompts = len(activations.prompts)
    if prompt is None and num_prompts > 1 and len(activations) == num_prompts:
        names = [plain(text) for text in activations.prompts]
        token = f" (token: {activations.read})" if activations.read else ""
        return np.arange(num_prompts), names, f"prompt{token}"
    number = 0 if prompt is None else prompt
    rows = rows_of(activations, number)
    tokens = activations.tokens
    names = [str(row) for row in rows]
    if tokens is not None:
        names = [plain(visible(tokens.text[row])) for row in rows]
    return rows, names, f"token of prompt {number}" if tokens is not None else "row"


def rows_of(activations: Activations, prompt: int) -> npt.NDArray[np.int64]:
    """Find the rows of one prompt.

    Raises:
        DocumentError: There is no such prompt.
    """
    rows = np.flatnonzero(activations.prompt_index == prompt)
    if not len(rows):
        raise DocumentError(
            f"there is no row of prompt {prompt}; prompts count from 0 to "
            f"{len(activations.prompts) - 1}",
            field="prompt",
            found=prompt,
        )
    return rows


def judged_rows(
    activations: Activations, rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Choose among rows those that colours are to tell apart, (num_rows,).

    They are the text's own, but for a sequence's first token, whose row is often longer
    than all others; all rows where there is none of these.
    """
    every = np.ones(len(rows), np.bool_)
    tokens = activations.tokens
    if tokens is None:
        return every
    own = ~tokens.in_template[rows]
    for chosen in (own & (tokens.position[rows] != 0), own):
        if chosen.any():
            return chosen
    return every


def visible(token: str) -> str:
    """Let the white space of a token be seen."""
    return token.replace(" ", "·").replace("\n", "↵").replace("\t", "→")
