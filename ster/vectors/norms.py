"""The residual stream's own length at each layer, which ``0.05n`` counts in.

A vector keeps these lengths as a JSON list among its metadata, one for each of its
layers: the mean over the rows that it was fitted on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from ster.documents.float32 import shortest
from ster.errors import DirectionError
from ster.text import to_float
from ster.vectors.strengths import Strength

F32 = NDArray[np.float32]
Norms = tuple[float, ...]
RESIDUAL_NORMS = "residual_norms"


def note_norms(norms: Iterable[float]) -> dict[str, str]:
    """Write norms as metadata, in the digits of f32; none where one leaves its range.

    Args:
        norms: One for each layer.
    """
    with np.errstate(over="ignore"):
        narrowed = [*map(shortest, norms)]
    if not all(map(math.isfinite, narrowed)):
        return {}
    return {RESIDUAL_NORMS: json.dumps(narrowed)}


def read_norms(metadata: Mapping[str, str], num_layers: int) -> Norms | None:
    """Read norms; anyone may have written them, so what is no such list is ignored."""
    try:
        norms = json.loads(metadata[RESIDUAL_NORMS])
    except (KeyError, ValueError, RecursionError):
        return None
    if not isinstance(norms, list) or len(norms) != num_layers:
        return None
    return tuple(map(to_float, norms)) if all(map(_is_norm, norms)) else None


def take_norms(norms: Iterable[float], num_layers: int) -> dict[str, str]:
    """Take norms as a notebook has them, and write them as metadata.

    Raises:
        DirectionError: They are not one length for each layer.
    """
    given = [*norms]
    noted = note_norms(given) if all(map(_is_norm, given)) else {}
    if len(given) != num_layers or not noted:
        raise DirectionError(
            "residual norms must be one length for each layer",
            field=RESIDUAL_NORMS,
            found=given,
            expected=num_layers,
        )
    return noted


def merge_norms(
    layers: Sequence[int], parts: Sequence[tuple[Sequence[int], Norms | None]]
) -> dict[str, str]:
    """Write the norms of a sum as metadata: those of its layers.

    Args:
        layers: Those of the sum.
        parts: Layers and norms of what was added up. Where several have a layer, it
            gets their mean; where none knows a layer's norm, the sum has no norms.
    """
    found: dict[int, list[float]] = {layer: [] for layer in layers}
    for own, norms in parts:
        for layer, norm in zip(own, norms or (), strict=norms is not None):
            found[layer].append(norm)
    if not all(found.values()):
        return {}
    return note_norms(math.fsum(each) / len(each) for each in found.values())


def scale_rows(array: F32, strength: Strength, norms: Norms | None) -> F32:
    """Multiply a vector's rows by a strength: each by a share of its layer's norm.

    Args:
        array: (num_layers, hidden_size).
        strength: A number multiplies all rows alike; one in norms needs ``norms``.
        norms: One for each row.

    Returns:
        What may be infinite where it leaves f32.

    Raises:
        DirectionError: The strength counts in norms, and there are none.
    """
    factors = np.full(len(array), strength.value)
    if strength.of_norm:
        if norms is None:
            raise DirectionError(
                f"a vector without residual norms cannot be taken at {strength}",
                "train it again, or give them: vector.with_norms([...])",
                field="strength",
                found=str(strength),
            )
        factors = factors * norms
    with np.errstate(all="ignore"):
        scaled: F32 = array * factors.astype(np.float32)[:, np.newaxis]
    return scaled


def _is_norm(value: object) -> bool:
    """Tell whether something is a length: a finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return 0 <= to_float(value) < math.inf
