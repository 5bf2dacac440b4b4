"""What a run asks of a model that runs as a whole: its own module, its own loop.

A ``contract.Decoder`` is run block by block by ster's loops. A ``WholeModel`` takes its
place where it cannot be: it does itself what the runs do, so they ask which of the two
they have and hand their work over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ster.stream.changes import Deltas
from ster.stream.packing import Tokens

F32 = NDArray[np.float32]


class WholeWeights(ABC):
    """What is held of such a checkpoint, beside what ``contract.Weights`` says."""

    @abstractmethod
    def add_files(self, files: Sequence[Path]) -> None:
        """Give it the weight files, which it reads itself."""


class WholeModel(ABC):
    """A checkpoint at work in one run; arguments are those of the runs' functions."""

    @property
    @abstractmethod
    def max_position_embeddings(self) -> int:
        """Return the trained length in tokens."""

    @abstractmethod
    def read_rows(
        self,
        prompts: Sequence[Tokens],
        positions: Sequence[Sequence[int]],
        layers: Sequence[int],
        deltas: Deltas,
        on_block: Callable[[int], None],
        prompt_lengths: Sequence[int],
    ) -> F32:
        """Read some tokens of each prompt after chosen layers; see ``runs.reading``.

        Returns:
            (num_positions, num_layers, hidden_size), prompt by prompt.
        """

    @abstractmethod
    def score_responses(
        self,
        responses: Sequence[Tokens],
        deltas: Deltas,
        prompt_lengths: Sequence[int],
    ) -> list[float]:
        """Sum each response's log-probabilities; see ``runs.scoring``."""

    @abstractmethod
    def write_tokens(
        self,
        prompt: Tokens,
        deltas: Deltas,
        sample: Callable[[F32], int],
        stop_ids: Collection[int],
        max_new_tokens: int,
    ) -> Iterator[int]:
        """Continue a prompt token by token; see ``runs.writing``."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what only this run needs; see ``contract.Decoder``."""
