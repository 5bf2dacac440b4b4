"""Drawing tokens on a GPU, as ``decoder.sampling`` does it on the cpu."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from ster.decoder.sampling import Drawing


def draw(logits: mx.array, drawing: Drawing) -> mx.array:
    """Draw a token of each row of logits, (num_rows, vocab_size) f32 -> (num_rows,).

    Each row has its own point, which falls on the token that covers it where the
    probabilities are laid end to end.
    """
    below = logits - logits.max(axis=-1, keepdims=True)
    mass = mx.softmax(below / max(drawing.temperature, 1e-30), axis=-1, precise=True)
    if drawing.top_p is not None:
        mass = _keep_top(mass, drawing.top_p)
    reached = mx.cumsum(mass, axis=-1)
    at = mx.array(drawing.at.astype(np.float32))[:, None]
    index = (reached <= at * reached[:, -1:]).sum(axis=-1)
    # Rounding may reach beyond the last token of any mass.
    places = mx.arange(mass.shape[-1])
    return mx.minimum(index, mx.where(mass > 0, places, 0).max(axis=-1))


def _keep_top(mass: mx.array, top_p: float) -> mx.array:
    """Drop all but the fewest likeliest tokens that reach ``top_p``."""
    order = mx.argsort(-mass, axis=-1)
    ranked = mx.take_along_axis(mass, order, axis=-1)
    before = mx.cumsum(ranked, axis=-1) - ranked
    kept = mx.take_along_axis(before < top_p, mx.argsort(order, axis=-1), axis=-1)
    return mx.where(kept, mass, 0.0)
