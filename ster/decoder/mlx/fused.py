"""Elementwise steps that a GPU takes in one kernel: a token costs what kernels do."""

from __future__ import annotations

import functools
from collections.abc import Callable

import mlx.core as mx


def fused(function: Callable[..., mx.array]) -> Callable[..., mx.array]:
    """Compile a function of arrays for a GPU.

    It has to be elementwise, so that it may be compiled once for all shapes. On the cpu
    it runs as it is: MLX would look for a C++ compiler there.
    """
    compiled = mx.compile(function, shapeless=True)

    @functools.wraps(function)
    def call(*arrays: mx.array) -> mx.array:
        chosen = compiled if mx.default_device() == mx.gpu else function
        return chosen(*arrays)

    return call
