"""Checks of what a steering vector is made of."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Protocol

import numpy as np

from ster.documents.float32 import shortest
from ster.errors import DirectionError, DocumentError
from ster.text import quoted, to_float


class Space(Protocol):
    """What has directions in a model's residual stream."""

    model: str

    @property
    def hidden_size(self) -> int:
        """The width of the residual stream."""


def is_number(value: object) -> bool:
    """Tell whether a value is a real number; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_metadata(metadata: object) -> None:
    """Refuse metadata that are not strings by strings.

    Raises:
        DocumentError: They are something else.
    """
    parts = metadata.items() if isinstance(metadata, Mapping) else [(None, None)]
    if not all(isinstance(part, str) for item in parts for part in item):
        raise DocumentError("metadata must be strings by strings")


def check_numbers(
    name: str, numbers: Sequence[float], num_layers: int
) -> tuple[float, ...]:
    """Take one number for each layer, as f32 prints it.

    Raises:
        DocumentError: There are more or fewer, or one is not finite.
    """
    if len(numbers) != num_layers or not all(map(is_number, numbers)):
        raise DocumentError(f"{name} must be one number for each layer")
    with np.errstate(over="ignore"):
        narrowed = tuple(map(shortest, map(to_float, numbers)))
    if not all(map(math.isfinite, narrowed)):
        raise DocumentError(f"{name} holds a value that is not finite")
    return narrowed


def check_same_space(one: Space, other: Space) -> None:
    """Refuse to add vectors of different models.

    Raises:
        DirectionError: The model's name or the hidden size differs.
    """
    for name in ("model", "hidden_size"):
        read = operator.attrgetter(name)
        if read(one) != read(other):
            raise DirectionError(
                f"vectors of different models cannot be added: {name} is "
                f"{quoted(str(read(one)))} and {quoted(str(read(other)))}",
                field=name,
                found=read(other),
                expected=read(one),
            )
