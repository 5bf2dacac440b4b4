"""The bytes of quantized matrices -> their values, in f32 and exact.

A row of a matrix is one stream of bits, its first value in the lowest bits of its first
byte. A table holds, for each pattern of bits that is looked at together, the values in
it; what they are multiplied by follows group by group, while they are in the core's
cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ster.architecture.quantization import Format

F32 = NDArray[np.float32]

# By bits of a value: bits that are looked at together, and how many values they hold.
_PATTERNS = {2: (8, 4), 3: (12, 4), 4: (8, 2), 5: (10, 2), 6: (12, 2), 8: (8, 1)}
# One table entry is moved as one item of its size.
_ITEMS = {1: np.float32, 2: np.float64, 4: np.complex128}
# A piece, with its indices, is to stay in a core's own cache.
_PIECE_VALUES = 1 << 15
# Of an f32, below those that come from f16; bf16 has fewer still.
_BELOW_F16 = np.uint32((1 << 13) - 1)
# 255 times this is finite.
_LARGEST_SCALE = np.float32(2.0**119)


class _Table(NamedTuple):
    """The values in each pattern of bits.

    Args:
        entries: One item each, of as many f32 as there are in a pattern.
        bits: Of a pattern.
    """

    entries: NDArray[Any]
    bits: int


def dequantize(
    words: NDArray[np.uint32],
    scales: NDArray[Any],
    biases: F32 | None,
    format: Format,
    out: F32 | None = None,
) -> F32:
    """Return the values of a matrix, or of some rows of it.

    Args:
        words: (rows, inputs · bits / 32), as in the file.
        scales: (rows, inputs / group_size): f32 for affine, else bytes: powers of two
            (E8M0) for mxfp4 and mxfp8, E4M3 for nvfp4.
        biases: As the scales for affine, else None.
        format: How they are stored; fp8 is ``dequantize_fp8``'s.
        out: (rows, inputs), contiguous, for the result.

    Returns:
        (rows, inputs): scale · q + bias, rounded once; the fp modes have the bits that
        ``mx.dequantize`` gives them in f32.
    """
    rows, inputs = words.shape[0], words.shape[1] * 32 // format.bits
    out = _result(rows, inputs, out)
    data = np.ascontiguousarray(words, "<u4").view(np.uint8)
    factors = _factors(scales, format)
    is_exact = biases is None or _is_exact(factors)
    # What multiplication makes infinite is so in MLX too, and the run says it.
    with np.errstate(over="ignore", invalid="ignore"):
        for some in _pieces(rows, inputs):
            values = out[some]
            _unpack(data[some], format, values)
            if is_exact:
                _scale(values, factors[some], format.group_size)
                if biases is not None:
                    grouped = values.reshape(len(values), -1, format.group_size)
                    grouped += biases[some, :, None]
            elif biases is not None:
                _scale_wide(values, factors[some], biases[some])
    return out


def dequantize_fp8(
    values: NDArray[np.uint8],
    scales: F32,
    format: Format,
    out: F32 | None = None,
    *,
    first_row: int = 0,
) -> F32:
    """Return the values of an fp8 matrix, or of some rows of it.

    Args:
        values: (rows, inputs), E4M3 without infinities.
        scales: (row blocks, input blocks); the last of each may be cut short.
        format: The size of the blocks.
        out: (rows, inputs), contiguous, for the result.
        first_row: Where in the matrix of these scales the first of the rows stands.
    """
    rows, inputs = values.shape
    out = _result(rows, inputs, out)
    blocks = np.arange(first_row, first_row + rows) // format.block_rows
    with np.errstate(over="ignore", invalid="ignore"):
        for some in _pieces(rows, inputs):
            np.take(_codes("fp8", 8), values[some], out=out[some], mode="clip")
            _scale(out[some], scales[blocks[some]], format.group_size)
    return out


def _result(rows: int, inputs: int, out: F32 | None) -> F32:
    if out is None:
        return np.empty((rows, inputs), np.float32)
    if out.shape != (rows, inputs) or not out.flags.c_contiguous:
        raise ValueError(f"out is not a contiguous array of {rows} rows of {inputs}")
    return out


def _factors(scales: NDArray[Any], format: Format) -> F32:
    """Return what values are multiplied by."""
    if format.mode in ("mxfp4", "mxfp8"):
        factors: F32 = _powers()[scales]
    elif format.mode == "nvfp4":
        factors = _codes("fp8", 8)[scales]
    else:
        factors = scales.astype(np.float32, copy=False)
    return factors


@cache
def _table(mode: str, bits: int) -> _Table:
    width, count = _PATTERNS[bits]
    shifts = np.arange(count) * bits
    codes = np.arange(1 << width)[:, None] >> shifts & ((1 << bits) - 1)
    entries = _codes(mode, bits)[codes]
    return _Table(entries.view(_ITEMS[count]).ravel(), width)


@cache
def _codes(mode: str, bits: int) -> F32:
    """List the values of all codes, before they are scaled."""
    if mode == "affine":
        return np.arange(1 << bits, dtype=np.float32)
    codes = np.arange(1 << (bits - 1))
    fraction_bits, bias = (1, 1) if bits == 4 else (3, 7)
    exponent, fraction = codes >> fraction_bits, codes & ((1 << fraction_bits) - 1)
    # An exponent of zero is that of one, without the leading 1.
    significand = fraction + np.where(exponent > 0, 1 << fraction_bits, 0)
    power = np.maximum(exponent, 1) - bias - fraction_bits
    positive = np.ldexp(significand.astype(np.float32), power)
    if bits == 8:
        positive[-1] = np.nan
    return np.concatenate([positive, -positive]).astype(np.float32)


@cache
def _powers() -> F32:
    """List 2^(s - 127) for all bytes s; the last is infinite in f32, as in MLX."""
    with np.errstate(over="ignore"):
        return np.ldexp(np.float32(1), np.arange(256) - 127)


def _pieces(rows: int, inputs: int) -> Iterator[slice]:
    step = max(1, _PIECE_VALUES // max(1, inputs))
    return (slice(start, start + step) for start in range(0, rows, step))


def _unpack(data: NDArray[np.uint8], format: Format, out: F32) -> None:
    """Write the codes' values, not yet scaled.

    Args:
        data: (rows, bytes of a row), contiguous.
        format: How they are stored.
        out: (rows, inputs), contiguous.
    """
    if format.mode == "affine" and format.bits == 8:
        np.copyto(out, data)
        return
    entries, width = _table(format.mode, format.bits)
    indices = data.reshape(-1) if width == 8 else _indices(data, format.bits, width)
    np.take(entries, indices, out=out.reshape(-1).view(entries.dtype), mode="clip")


def _indices(data: NDArray[np.uint8], bits: int, width: int) -> NDArray[np.intp]:
    """Cut the bits into patterns, each of which lies in two neighbouring bytes."""
    num_bytes = bits if width == 10 else 3  # until a pattern begins with a byte again
    repeats = data.size // num_bytes
    indices = np.empty((repeats, num_bytes * 8 // width), np.intp)
    for place in range(indices.shape[1]):
        first, shift = divmod(place * width, 8)
        pairs: NDArray[np.uint16] = np.ndarray(
            repeats, "<u2", data.reshape(-1), offset=first, strides=(num_bytes,)
        )
        mask = np.uint16((1 << width) - 1)
        indices[:, place] = (pairs >> np.uint16(shift)) & mask
    return indices.reshape(-1)


def _is_exact(scales: F32) -> bool:
    """Tell whether scale · q is exact in f32: the scales have no more bits than f16."""
    bits = np.ascontiguousarray(scales).view(np.uint32)
    is_short = not (np.bitwise_or.reduce(bits, axis=None) & _BELOW_F16)
    return is_short and bool(np.all(np.abs(scales) < _LARGEST_SCALE))


def _scale(values: F32, scales: F32, group_size: int) -> None:
    """Multiply in place; the last group may be cut short."""
    rows, inputs = values.shape
    whole = inputs // group_size * group_size
    grouped = values[:, :whole].reshape(rows, -1, group_size)
    if whole == inputs:
        grouped *= scales[:, :, None]
        return
    values[:, :whole] = (grouped * scales[:, :-1, None]).reshape(rows, whole)
    values[:, whole:] *= scales[:, -1:]


def _scale_wide(values: F32, scales: F32, biases: F32) -> None:
    """Do scale · q + bias in f64, in which the product is exact, and round it."""
    wide = values.astype(np.float64).reshape(*scales.shape, -1)
    # Numpy is slow where it widens one operand as it goes.
    wide *= scales.astype(np.float64)[:, :, None]
    wide += biases.astype(np.float64)[:, :, None]
    np.copyto(values, wide.reshape(values.shape), casting="same_kind")
