"""Matrices and norms: what they compute, and where they lie in a checkpoint.

A name is the checkpoint's own, relative to the block that it belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
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
class Suffixes:
    """What follows a module's name in the names of its tensors.

    Args:
        weight: Of the weight.
        bias: Of the bias.
        scales: Of the scales, where the weight is quantized.
    """

    weight: str = ".weight"
    bias: str = ".bias"
    scales: str = ".scales"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """y = x Wᵀ + b, with W as (outputs, inputs), and where it lies in the checkpoint.

    Args:
        name: Of the module, whose tensors are named after it.
        outputs: Width of y.
        inputs: Width of x.
        bias: There is a b.
        part: Its rows in a tensor that holds others as well.
        transposed: The tensor is stored as (inputs, outputs).
        pairs: Of each head, width and turning channels, where the channels that turn
            together are stored side by side: they are taken apart into halves.
        stack: Which of how many that are stacked in one tensor, along its first axis.
        suffixes: How its tensors' names end.
        others: Where else files have it; a file has it in one place.
    """

    name: str
    outputs: int
    inputs: int
    bias: bool = False
    part: Part | None = None
    transposed: bool = False
    pairs: tuple[int, int] | None = None
    stack: tuple[int, int] | None = None
    suffixes: Suffixes = Suffixes()
    others: tuple[Matrix, ...] = ()

    @property
    def places(self) -> tuple[Matrix, ...]:
        """Itself, and where else files have it."""
        return (self, *self.others)

    @property
    def weight_name(self) -> str:
        """The name of the weight's tensor."""
        return self.name + self.suffixes.weight

    @property
    def bias_name(self) -> str:
        """The name of the bias's tensor."""
        return self.name + self.suffixes.bias

    @property
    def scales_name(self) -> str:
        """The name of the scales' tensor, where it is quantized."""
        return self.name + self.suffixes.scales

    @property
    def num_values(self) -> int:
        """Count the values of its weight."""
        return self.outputs * self.inputs

    @property
    def shapes(self) -> Shapes:
        """List its tensors, as they are stored."""
        outputs = self.outputs if self.part is None else self.part.outputs
        stored = (self.inputs, outputs) if self.transposed else (outputs, self.inputs)
        several = () if self.stack is None else (self.stack[1],)
        shapes: Shapes = {self.weight_name: (*several, *stored)}
        return shapes | ({self.bias_name: (*several, outputs)} if self.bias else {})

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
    def places(self) -> tuple[Norm, ...]:
        """Itself: files have it in one place."""
        return (self,)

    @property
    def order(self) -> NDArray[np.intp]:
        """The places of its values, pairs taken apart into halves."""
        return _halved(np.arange(self.size), self.pairs)

    @property
    def shapes(self) -> Shapes:
        """List its tensors."""
        shapes: Shapes = {f"{self.name}.weight": (self.size,)}
        return shapes | ({f"{self.name}.bias": (self.size,)} if self.bias else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """A tensor that is neither matrix nor norm, such as attention's sinks."""

    name: str
    shape: tuple[int, ...]

    @property
    def places(self) -> tuple[Values, ...]:
        """Itself: files have it in one place."""
        return (self,)

    @property
    def shapes(self) -> Shapes:
        """List its tensor."""
        return {self.name: self.shape}


Module = Matrix | Norm | Values


def present(*modules: Module | None) -> tuple[Module, ...]:
    """List those that are there."""
    return tuple(each for each in modules if each is not None)


def shapes_of(modules: Iterable[Module]) -> Shapes:
    """Merge the tensors of modules; those that share one name it alike."""
    shapes: Shapes = {}
    for module in modules:
        shapes |= module.shapes
    return shapes


def count_values(modules: Iterable[Module]) -> int:
    """Count the values of modules, each its own share of a tensor that it shares."""
    return sum(map(_num_values, modules))


def _num_values(module: Module) -> int:
    if isinstance(module, Matrix):
        return module.num_values + (module.outputs if module.bias else 0)
    return sum(map(math.prod, module.shapes.values()))


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
