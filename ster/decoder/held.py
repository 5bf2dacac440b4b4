"""What both implementations hold of a checkpoint: its tensors, blocks and a head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from ster.architecture.spec import ModelSpec
from ster.checkpoint.matrices import StoredMatrix, stored_matrix
from ster.checkpoint.stored import Stored

Block = TypeVar("Block")
Head = TypeVar("Head")


class HeldWeights(Generic[Block, Head]):
    """The tensors that runs have opened, and what stays in memory between them.

    Args:
        model: What the decoder is.
    """

    def __init__(self, model: ModelSpec) -> None:
        self.model = model
        self._tensors: dict[str, Stored] = {}
        self._blocks: dict[int, Block] = {}
        self._head: Head | None = None

    def add(self, tensors: Mapping[str, Stored]) -> None:
        """Give it more tensors; see ``contract.Weights``."""
        self._tensors.update(tensors)

    def release(self) -> None:
        """Let go of what stays; see ``contract.Weights``."""
        self._blocks, self._head = {}, None

    def embedding(self) -> StoredMatrix:
        """Return the embedding as it is stored."""
        return stored_matrix(self._tensors, "", self.model.embedding)

    def positions(self) -> StoredMatrix | None:
        """Return the learned positions as they are stored, if there are any."""
        positions = self.model.positions
        return (
            None if positions is None else stored_matrix(self._tensors, "", positions)
        )
