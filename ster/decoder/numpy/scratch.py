"""Memory for what a block computes on its way, made once for a run and used again.

Fresh memory costs a page fault for every few kilobytes, which takes longer than most of
the arithmetic that is done in it.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]


class Scratch:
    """Named arrays of each thread; a name's next array lies where its last one did."""

    def __init__(self) -> None:
        self._held = threading.local()

    def __call__(
        self, name: str, *shape: int, dtype: npt.DTypeLike = np.float32
    ) -> npt.NDArray[Any]:
        """Take an array of a shape; what is in it is left over."""
        size, held = math.prod(shape), vars(self._held)
        if name not in held or held[name].size < size or held[name].dtype != dtype:
            held[name] = np.empty(size, dtype)
        taken: npt.NDArray[Any] = held[name][:size].reshape(shape)
        return taken

    def columns(self, name: str, num_rows: int, num_columns: int) -> F32:
        """Take rows that lie column by column, (num_rows, num_columns) f32."""
        return self(name, num_columns, num_rows).T

    def clear(self) -> None:
        """Let go of every array; those in use live on."""
        self._held = threading.local()
