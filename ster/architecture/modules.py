"""Matrices and norms: what they compute, and where they lie in a checkpoint.

A name is the checkpoint's own, relative to the block that it belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Which rows of a fused tensor a matrix is.

    The tensor's outputs are groups of equal width, and of each group the matrix has a
    run of the same length. ``Part(outputs=96, start=48)`` is the rows from 48 on.

    Args:
        outputs: Of the whole tensor.
        start: Where the run begins in each group.
        groups: How many there are.
    """

    outputs: int
    start: int = 0
    groups: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """y = x Wᵀ + b, with W as (outputs, inputs), and where it lies in the checkpoint.

    Args:
        name: Of the module; its tensors are ``<name>.weight`` and ``<name>.bias``.
        outputs: Width of y.
        inputs: Width of x.
        bias: There is a b.
        part: Its rows in a tensor that holds others as well.
        transposed: The tensor is stored as (inputs, outputs).
        pairs: Of each head, width and turning channels, where the channels that turn
            together are stored side by side: they are taken apart into halves.
    """

    name: str
    outputs: int
    inputs: int
    bias: bool = False
    part: Part | None = None
    transposed: bool = False
    pairs: tuple[int, int] | None = None

    @property
    def weight_name(self) -> str:
        """The name of the weight's tensor."""
        return f"{self.name}.weight"

    @property
    def bias_name(self) -> str:
        """The name of the bias's tensor."""
        return f"{self.name}.bias"

    @property
    def num_values(self) -> int:
        """Count the values of its weight."""
        return self.outputs * self.inputs

    @property
    def shapes(self) -> Shapes:
        """List its tensors, as they are stored."""
        outputs = self.outputs if self.part is None else self.part.outputs
        stored = (self.inputs, outputs) if self.transposed else (outputs, self.inputs)
        shapes: Shapes = {self.weight_name: stored}
        return shapes | ({self.bias_name: (outputs,)} if self.bias else {})

    @property
    def keeps_order(self) -> bool:
        """Tell whether its rows are all of its tensor's, one after the other."""
        return self.part is None and self.pairs is None

    @property
    def rows(self) -> NDArray[np.intp]:
        """Its rows in its tensor, in the order in which the decoders need them."""
        rows = np.arange(self.outputs)
        if self.part is not None:
            width = self.part.outputs // self.part.groups
            run = self.outputs // self.part.groups
            first = self.part.start + np.arange(self.part.groups) * width
            rows = (first[:, None] + np.arange(run)).ravel()
        return _halved(rows, self.pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """x / sqrt(mean(x²) + eps) · w over the last axis (RMSNorm), or LayerNorm.

    Args:
        name: Of the module; its tensors are ``<name>.weight`` and ``<name>.bias``.
        size: Width of x.
        eps: Added to the mean square.
        offset: Added to the stored weight; some families store w - 1.
        centred: The mean is taken off first (LayerNorm).
        bias: There is one.
        pairs: As for the matrix before it, whose heads it normalises.
    """

    name: str
    size: int
    eps: float
    offset: float = 0.0
    centred: bool = False
    bias: bool = False
    pairs: tuple[int, int] | None = None

    @property
    def order(self) -> NDArray[np.intp]:
        """The places of its values, pairs taken apart into halves."""
        return _halved(np.arange(self.size), self.pairs)

    @property
    def shapes(self) -> Shapes:
        """List its tensors."""
        shapes: Shapes = {f"{self.name}.weight": (self.size,)}
        return shapes | ({f"{self.name}.bias": (self.size,)} if self.bias else {})


def _halved(
    places: NDArray[np.intp], pairs: tuple[int, int] | None
) -> NDArray[np.intp]:
    """Take the pairs of each head apart into halves: 0 1 2 3 becomes 0 2 1 3."""
    if pairs is None:
        return places
    head_dim, turning = pairs
    order = np.arange(head_dim)
    order[:turning] = order[:turning].reshape(-1, 2).T.ravel()
    return places.reshape(-1, head_dim)[:, order].ravel()
