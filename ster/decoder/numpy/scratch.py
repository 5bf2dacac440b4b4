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
F32_WIDTH: np.dtype[Any] = np.dtype(np.float32)
# What a name has before it has an array.
NONE: F32 = np.empty(0, np.float32)


class Scratch:
    """Named arrays of each thread; a name's next array lies where its last one did."""

    def __init__(self) -> None:
        self._held = threading.local()

    def __call__(
        self, name: str, *shape: int, dtype: np.dtype[Any] = F32_WIDTH
    ) -> npt.NDArray[Any]:
        """Take an array of a shape; what is in it is left over."""
        held: dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]] = vars(self._held)
        memory, taken = held.get(name, (NONE, NONE))
        # Mostly it is the last one again, and for a single row all the rest is slow.
        if taken.shape == shape and taken.dtype == dtype:
            return taken
        size = math.prod(shape)
        if memory.size < size or memory.dtype != dtype:
            memory = np.empty(size, dtype)
        taken = memory[:size].reshape(shape)
        held[name] = memory, taken
        return taken

    def columns(self, name: str, num_rows: int, num_columns: int) -> F32:
        """Take rows that lie column by column, (num_rows, num_columns) f32."""
        return self(name, num_columns, num_rows).T

    def clear(self) -> None:
        """Let go of every array; those in use live on."""
        self._held = threading.local()
