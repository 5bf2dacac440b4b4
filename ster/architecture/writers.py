"""What writes to the residual stream: the last matrices of a block's two halves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ster.architecture.modules import Matrix, Norm
from ster.architecture.parts import Experts
from ster.architecture.spec import LayerSpec


class Writer(NamedTuple):
    """A matrix whose outputs are added to the stream.

    Args:
        matrix: As (outputs, inputs), it has hidden_size outputs.
        norm: What its outputs pass on their way, if there is one.
    """

    matrix: Matrix
    norm: Norm | None


def stream_writers(layer: LayerSpec) -> Iterator[Writer]:
    """List the matrices of a block whose outputs are added to the stream.

    These are o_proj and down_proj, whatever the family calls them; of experts it is
    every one's, and that of the shared one.
    """
    yield Writer(layer.attention.o_proj, layer.attention_out_norm)
    made = layer.feed_forward
    if isinstance(made, Experts):
        parts = (*made.experts, *(() if made.shared is None else (made.shared,)))
    else:
        parts = (made,)
    for part in parts:
        yield Writer(part.down_proj, layer.feed_forward_out_norm)
