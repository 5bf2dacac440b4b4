"""Rotary scalings, resolved: values that tables are computed from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultRope:
    """Unscaled rotary frequencies: theta^(-2i/head_dim)."""

    theta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearRope:
    """Frequencies divided by a factor."""

    theta: float
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicRope:
    """A theta that grows with the prompt, once it is longer than the trained length."""

    theta: float
    factor: float
    max_position_embeddings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Rope:
    """Long wavelengths divided by a factor, short ones kept, a blend between."""

    theta: float
    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnRope:
    """Interpolated and extrapolated frequencies blended by their rotations.

    ``attention_factor`` multiplies cosines and sines.
    """

    theta: float
    factor: float
    attention_factor: float
    beta_fast: float
    beta_slow: float
    truncate: bool
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRope:
    """Frequencies divided by factors of their own, others for long prompts than short.

    ``attention_factor`` multiplies cosines and sines.
    """

    theta: float
    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    attention_factor: float
    original_max_position_embeddings: int


RopeConfig = DefaultRope | LinearRope | DynamicRope | Llama3Rope | YarnRope | LongRope


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryScaling:
    """Queries grow by 1 + beta · log(1 + floor(position / length))."""

    beta: float
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRope:
    """All that a config says of the rotation.

    Args:
        scaling: Theta, and what becomes of the frequencies.
        partial: The share of a head's channels that turns.
        query_scaling: What queries are multiplied by, if by anything.
    """

    scaling: RopeConfig
    partial: float = 1.0
    query_scaling: QueryScaling | None = None
