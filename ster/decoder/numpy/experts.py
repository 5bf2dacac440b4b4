"""Experts in numpy: each chosen one is opened once and multiplies its own rows only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ster.architecture import parts
from ster.decoder.numpy.parts import F32, MLP, Linear, slice_rows
from ster.decoder.numpy.scratch import Scratch
from ster.decoder.numpy.threads import GRAIN, Threads

Ints = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The sum over a row's chosen experts of weight · expert(x), and a shared one's.

    Args:
        spec: What the experts are.
        router: Makes a score for each expert.
        open_expert: Reads an expert's weights, into one of as many rooms as there are
            cores; whoever was there before is spoilt.
        stay: Experts stay once they are open.
        shared: Serves every row.
        shared_gate: Makes the score whose sigmoid multiplies what the shared one gives.
    """

    spec: parts.Experts
    router: Linear
    open_expert: Callable[[int, int], MLP]
    stay: bool
    shared: MLP | None
    shared_gate: Linear | None
    _opened: dict[int, MLP] = field(default_factory=dict)

    def __call__(self, x: F32, threads: Threads, scratch: Scratch) -> F32:
        """Apply to rows, (num_rows, hidden_size); the sums are a new array."""
        chosen, weights = self.route(x)
        summed = np.zeros_like(x)
        # Whole shares, since an expert has few rows of each.
        share = max(GRAIN, -(-len(x) // threads.num_threads))
        slices = threads.slices(len(x), share)
        if (shared := self.shared) is not None:
            threads.map(
                lambda p: self._add_shared(shared, x[p], summed[p], scratch), slices
            )
        used = np.unique(chosen).tolist()
        for at in range(0, len(used), threads.num_threads):
            group = used[at : at + threads.num_threads]
            opened = threads.map(self._open, list(enumerate(group)))

            def add(
                part: slice, group: list[int] = group, opened: list[MLP] = opened
            ) -> None:
                for expert, mlp in zip(group, opened, strict=True):
                    rows, ranks = np.nonzero(chosen[part] == expert)
                    for cut in _cuts(rows, mlp):
                        shares = weights[part][rows[cut], ranks[cut], None]
                        made = mlp(x[part][rows[cut]], scratch)
                        summed[part][rows[cut]] += made * shares

            threads.map(add, slices)
        return summed

    def route(self, x: F32) -> tuple[Ints, F32]:
        """Choose experts, (num_rows, num_chosen), and weigh them, likewise."""
        shares = self.router(x)
        shares -= shares.max(axis=-1, keepdims=True)
        np.exp(shares, out=shares)
        shares /= shares.sum(axis=-1, keepdims=True)
        last = shares.shape[-1] - self.spec.num_chosen
        chosen: Ints = np.argpartition(shares, last, axis=-1)[:, last:]
        weights = np.take_along_axis(shares, chosen, axis=-1)
        if self.spec.normalized:
            weights /= weights.sum(axis=-1, keepdims=True)
        return chosen, weights

    def _open(self, placed: tuple[int, int]) -> MLP:
        room, expert = placed
        opened = self._opened.get(expert)
        if opened is None:
            opened = self.open_expert(expert, room)
            if self.stay:
                self._opened[expert] = opened
        return opened

    def _add_shared(self, shared: MLP, x: F32, summed: F32, scratch: Scratch) -> None:
        for cut in _cuts(range(len(x)), shared):
            made = shared(x[cut].copy(), scratch)
            if self.shared_gate is not None:
                made *= 1 / (1 + np.exp(-self.shared_gate(x[cut])))
            summed[cut] += made


def _cuts(rows: Sequence[int] | Ints, mlp: MLP) -> Iterator[slice]:
    """Cut rows so that what stands between products stays near the core."""
    step = slice_rows(mlp.down_proj.weight.shape[1])
    for at in range(0, len(rows), step):
        yield slice(at, min(at + step, len(rows)))
