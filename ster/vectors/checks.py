"""What the parts of a steering vector must be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real

import numpy as np

from ster.documents.float32 import shortest
from ster.errors import DocumentError
from ster.text import to_float


def is_number(value: object) -> bool:
    """Tell whether something is a real number."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_metadata(metadata: object) -> None:
    """Refuse what are no strings by strings.

    Raises:
        DocumentError: Something else is among them.
    """
    parts = metadata.items() if isinstance(metadata, Mapping) else [(None, None)]
    if not all(isinstance(part, str) for item in parts for part in item):
        raise DocumentError("metadata must be strings by strings")


def check_numbers(
    name: str, numbers: Sequence[float], num_layers: int
) -> tuple[float, ...]:
    """Take one number for each layer, as f32 prints it.

    Raises:
        DocumentError: They are not one finite number for each layer.
    """
    if len(numbers) != num_layers or not all(map(is_number, numbers)):
        raise DocumentError(f"{name} must be one number for each layer")
    with np.errstate(over="ignore"):
        narrowed = tuple(map(shortest, map(to_float, numbers)))
    if not all(map(math.isfinite, narrowed)):
        raise DocumentError(f"{name} holds a value that is not finite")
    return narrowed
