"""What a steering artifact holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ster.cli.tables.drawing import Column, Columns, number, plain, share, warning
from ster.text import counted, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ster.vectors.confounds import Confound
    from ster.vectors.steering import SteeringVector


def draw_vector(vector: SteeringVector) -> Iterator[RenderableType]:
    """Show what an artifact holds."""
    yield from title(vector)
    layers = vector.layers
    yield Columns(
        columns=[
            Column(name="layer", cells=[str(layer) for layer in layers]),
            Column(name="accuracy", cells=[share(a) for a in vector.train_accuracy]),
            Column(name="margin", cells=[number(m) for m in vector.train_margin]),
            Column(name="length", cells=[*map(number, vector.norms())], rank=1),
        ]
    )
    yield from facts(vector.metadata)
    yield "accuracy and margin on the pairs that it was fitted on"


def title(vector: SteeringVector) -> Iterator[RenderableType]:
    """Say what a vector is, above a table."""
    from rich.text import Text

    layers = counted(len(vector.layers), "layer")
    yield Text(one_line(vector.trait_name), style="bold")
    yield plain(
        f"{one_line(vector.method)}, {layers} of {one_line(vector.model)}, "
        f"hidden size {vector.hidden_size}"
    )
    precision, template = vector.precision, vector.chat_template
    if precision is not None or template is not None:
        yield plain(
            f"precision {one_line(precision or '-')}, chat template "
            f"{one_line(template or '-')}"
        )
    yield ""


def say_confounds(confounds: Sequence[Confound]) -> Iterator[RenderableType]:
    """Show the trivial features that order as many pairs, in the colour of warnings."""
    if confounds:
        features = ", ".join(one_line(str(each)) for each in confounds)
        yield warning(f"orders as many pairs: {features}")


def facts(metadata: Mapping[str, str]) -> Iterator[RenderableType]:
    """Show metadata, a line each."""
    for name, value in metadata.items():
        yield plain(f"{one_line(name)}: {one_line(value)}")
