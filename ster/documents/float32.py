"""f32 values from decimal text, exactly, though JSON parsers read f64.

Rounding text to f64 and then to f32 may give another f32 than rounding it once:
7.038531e-26 is the shortest text of an f32, but the f64 of that text lies halfway to
the next f32, and a tie rounds to the even one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# What lies halfway between two f32 has these bits of its f64 fraction clear.
_BELOW_HALFWAY = np.uint64(0x0FFFFFFF)


def narrow(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Turn f64, as parsed from the shortest digits of f32, back into these f32.

    Any other number becomes its nearest f32, infinite when it is too large.

    Args:
        values: The parsed numbers, of any shape, contiguous.
    """
    with np.errstate(over="ignore"):
        narrowed = values.astype(np.float32)
    suspicious = (values.view(np.uint64) & _BELOW_HALFWAY) == 0
    suspicious &= narrowed != values
    for index in zip(*np.nonzero(suspicious), strict=True):
        narrowed[index] = _whose_text_it_is(values[index], narrowed[index])
    return narrowed


def _whose_text_it_is(value: np.float64, nearest: np.float32) -> np.float32:
    """Choose, of the two f32 around a value, the one whose shortest text it is.

    The nearest where it is the shortest text of neither.
    """
    toward = np.float32(np.inf if value > nearest else -np.inf)
    other = np.nextafter(nearest, toward)
    return other if float(str(other)) == value else nearest


def shortest(value: float | np.float32) -> float:
    """Return the f64 that prints with the fewest digits of a value as f32."""
    return float(str(np.float32(value)))


def find_not_finite(rows: npt.NDArray[np.floating]) -> tuple[int, int] | None:
    """Find the first row, and its first layer, that hold what is no finite number.

    Args:
        rows: (num_rows, num_layers, hidden_size), looked at layer by layer, so that
            little memory is taken beside them.

    Returns:
        Their indices; None where all numbers are finite.
    """
    layers = range(rows.shape[1])
    finite = np.stack(
        [np.isfinite(rows[:, layer]).all(axis=-1) for layer in layers], axis=1
    )
    if finite.all():
        return None
    row, layer = np.unravel_index(int(finite.argmin()), finite.shape)
    return int(row), int(layer)
