"""Rotary frequencies and tables, shared by both decoders.

Every step is in float32 because transformers' is: the tables, not the formula, are what
two implementations must agree on. Powers, sines and cosines are taken in float64 and
rounded once, which is what torch's float32 kernels give. The only exception to "no
float64 in the decoder", and a table is small.

Source: transformers 5.24, modeling_rope_utils.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.architecture.parts import Rotary
from ster.architecture.rotary import (
    DefaultRope,
    DynamicRope,
    LinearRope,
    Llama3Rope,
    LongRope,
    QueryScaling,
    RopeConfig,
    YarnRope,
)
from ster.stream.packing import Ints

F32 = NDArray[np.float32]


Array = TypeVar("Array")
# Positions whose angles are taken at once: their float64 is four times the tables'.
ROWS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryTables(Generic[Array]):
    """Cosines and sines of every token's angles, each (num_tokens, dim / 2) f32.

    A row serves both halves of a head: (a, b) becomes (a cos - b sin, b cos + a sin).
    ``query_scale``, if it is there, multiplies queries, (num_tokens, 1, 1) f32.
    """

    cos: Array
    sin: Array
    query_scale: Array | None = None

    def rows(self, rows: Any) -> RotaryTables[Array]:  # noqa: ANN401
        """Take some rows."""
        scale = self.query_scale
        return RotaryTables(
            cos=self.cos[rows],  # type: ignore[index] # an array of either library
            sin=self.sin[rows],  # type: ignore[index]
            query_scale=None if scale is None else scale[rows],  # type: ignore[index]
        )


# An absurd scaling leads to results that are not finite, and those are refused.
@np.errstate(all="ignore")
def rotary_tables(
    rotary: Rotary, position_ids: Ints, rotary_lengths: Ints
) -> RotaryTables[F32]:
    """Build the tables for tokens at given positions.

    Args:
        rotary: The scaling, and how many channels turn.
        position_ids: Position of each token in its own prompt, (num_tokens,).
        rotary_lengths: ``ModelSpec.rotary_length`` of each token's prompt,
            (num_tokens,).
    """
    shape = len(position_ids), (rotary.dim + 1) // 2
    cos, sin = np.empty(shape, np.float32), np.empty(shape, np.float32)
    scaling = rotary.scaling
    scale = getattr(scaling, "attention_factor", 1.0)
    for length in np.unique(rotary_lengths):
        turns = frequencies(scaling, rotary.dim, int(length))
        rows = np.flatnonzero(rotary_lengths == length)
        for at in range(0, len(rows), ROWS):
            part = rows[at : at + ROWS]
            angles = position_ids[part].astype(np.float32)[:, None] * turns
            exact = angles.astype(np.float64)
            cos[part] = np.cos(exact).astype(np.float32) * scale
            sin[part] = np.sin(exact).astype(np.float32) * scale
    growth = rotary.query_scaling
    return RotaryTables(
        cos=cos,
        sin=sin,
        query_scale=None if growth is None else _query_scale(growth, position_ids),
    )


def _query_scale(growth: QueryScaling, position_ids: Ints) -> F32:
    """Compute what queries are multiplied by (Llama 4), (num_tokens, 1, 1)."""
    spans = np.floor(position_ids.astype(np.float32) / growth.length)
    scale: F32 = (1 + growth.beta * np.log(1 + spans)).astype(np.float32)
    return scale[:, None, None]


def frequencies(rope: RopeConfig, head_dim: int, length: int = 0) -> F32:
    """Compute the angle per position of each pair of channels, (head_dim / 2,) f32.

    Args:
        rope: The scaling.
        head_dim: Width of one head.
        length: The prompt's rotary length; used by dynamic scaling only.
    """
    exponents: F32 = np.arange(0, head_dim, 2).astype(np.float32) / np.float32(head_dim)
    match rope:
        case DefaultRope():
            return 1.0 / _power(rope.theta, exponents)
        case LinearRope():
            return 1.0 / _power(rope.theta, exponents) / rope.factor
        case DynamicRope():
            return 1.0 / _power(_dynamic_theta(rope, head_dim, length), exponents)
        case Llama3Rope():
            return _llama3(rope, 1.0 / _power(rope.theta, exponents))
        case LongRope():
            is_long = length > rope.original_max_position_embeddings
            factors = rope.long_factor if is_long else rope.short_factor
            divisors = np.array(factors, np.float32)
            return 1.0 / (divisors * _power(rope.theta, exponents))
        case YarnRope():
            return _yarn(rope, head_dim, _power(rope.theta, exponents))


def _power(base: float, exponents: F32) -> F32:
    return np.power(base, exponents.astype(np.float64)).astype(np.float32)


def _dynamic_theta(rope: DynamicRope, head_dim: int, length: int) -> float:
    """Grow theta with the prompt (NTK-aware scaling), step by step in float32."""
    # The length is an array in transformers, so these few steps round to float32 there.
    length = max(length, rope.max_position_embeddings)
    ratio = np.float32(rope.factor) * np.float32(length)
    ratio /= np.float32(rope.max_position_embeddings)
    grown = ratio - np.float32(rope.factor - 1)
    power = np.float32(np.float64(grown) ** (head_dim / (head_dim - 2)))
    return float(np.float32(rope.theta) * power)


def _llama3(rope: Llama3Rope, inv_freq: F32) -> F32:
    """Keep short wavelengths, divide long ones, blend between (Llama 3.1)."""
    original = rope.original_max_position_embeddings
    low, high = rope.low_freq_factor, rope.high_freq_factor
    wavelengths = (2 * math.pi) / inv_freq
    divided = inv_freq / rope.factor
    smooth = (original / wavelengths - low) / (high - low)
    blended = (1 - smooth) * inv_freq / rope.factor + smooth * inv_freq
    kept = np.where(wavelengths < original / high, inv_freq, blended)
    return np.where(wavelengths > original / low, divided, kept)


def _yarn(rope: YarnRope, head_dim: int, periods: F32) -> F32:
    """Blend interpolation and extrapolation (Peng et al. 2023, section 3.2)."""
    low, high = _yarn_range(rope, head_dim)
    ramp = (np.arange(head_dim // 2, dtype=np.float32) - low) / (high - low)
    extrapolated = 1 - np.clip(ramp, 0, 1)
    interpolation, extrapolation = 1.0 / (rope.factor * periods), 1.0 / periods
    blend: F32 = interpolation * (1 - extrapolated) + extrapolation * extrapolated
    return blend


def _yarn_range(rope: YarnRope, head_dim: int) -> tuple[float, float]:
    """Find the channels between which the blend runs."""

    def channel(rotations: float) -> float:
        turns = rope.original_max_position_embeddings / (rotations * 2 * math.pi)
        return head_dim * math.log(turns) / (2 * math.log(rope.theta))

    low, high = channel(rope.beta_fast), channel(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    # Equal bounds would divide by zero.
    return low, high + 0.001 if low == high else high
