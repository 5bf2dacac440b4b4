"""What a decoder is: the page to read first.

A decoder owns the weights of a checkpoint and runs its blocks. The residual stream is
not hidden in it: the loops hold it in a local variable and hand it from block to block,
so that reading the stream, or adding to it, is a plain statement between two of them.

There are two implementations of the same shape, ``decoder.numpy`` (cpu) and
``decoder.mlx`` (metal, cuda). The loops know this page and never an implementation.

The stream has no batch axis: ``num_tokens`` is the packed axis of ``packing``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.architecture.config import DecoderConfig
from ster.stream.attention import Attention
from ster.stream.packing import Ints
from ster.stream.rotary import RotaryTables

Array = TypeVar("Array")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave(Generic[Array]):
    """What a decoder needs to know of a packed stream, in its own arrays.

    Args:
        cos: Cosines of the rotary angles, (num_tokens, head_dim / 2) f32.
        sin: Sines of the rotary angles, (num_tokens, head_dim / 2) f32.
        attention: Who attends to whom.
    """

    cos: Array
    sin: Array
    attention: Attention[Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a decoder takes, in bytes, for the plan.

    Args:
        block_bytes: One block that stays resident.
        open_bytes: One block that is opened and closed, with what opening takes on top.
        token_bytes: One token of a wave, its share of everything that grows with it.
        row_bytes: One row that is read out.
        fixed_bytes: Scratch that grows with neither.
        key_bytes: One token of one prompt, shared or not: attention lists its keys.
    """

    block_bytes: int
    open_bytes: int
    token_bytes: int
    row_bytes: int
    fixed_bytes: int
    key_bytes: int = 0


class Cache(Protocol[Array]):
    """The keys and values of one layer, for generation; at the run's precision."""

    def append(self, keys: Array, values: Array) -> tuple[Array, Array]:
        """Add new tokens' keys and values; return those of all tokens so far.

        All are (num_tokens, num_key_value_heads, head_dim). What is held already is not
        copied at every call.
        """
        ...


class Block(Protocol[Array]):
    """One block with its weights: attention and feed-forward part."""

    def __call__(
        self, hidden: Array, wave: Wave[Array], cache: Cache[Array] | None = None
    ) -> Array:
        """Run the block.

        Args:
            hidden: resid_pre, (num_tokens, hidden_size), at the run's precision. It is
                given away: what is returned may lie in its memory.
            wave: What belongs to the stream.
            cache: Holds the tokens before; the attention's keys are rows of it.

        Returns:
            resid_post of the rows that ``wave.attention`` wants, (num_queries,
            hidden_size), at the run's precision.
        """
        ...


class Decoder(Protocol[Array]):
    """A checkpoint's blocks, on one device, at one precision."""

    @property
    def config(self) -> DecoderConfig:
        """Return what the decoder is."""
        ...

    @property
    def max_attention_pairs(self) -> int:
        """Return how many query-key pairs one attention batch may hold."""
        ...

    @property
    def max_attention_keys(self) -> int:
        """Return how many keys one attention batch may gather."""
        ...

    def embed(self, token_ids: Ints) -> Array:
        """Gather embedding rows, (num_tokens, hidden_size); the table stays as it is.

        Every id is below ``config.vocab_size``.
        """
        ...

    def block(self, layer: int) -> AbstractContextManager[Block[Array]]:
        """Open a block; its weights live as long as the ``with``, unless resident."""
        ...

    @property
    def resident(self) -> bool:
        """Tell whether blocks stay in memory once they have been opened."""
        ...

    def take(self, hidden: Array, rows: Ints) -> Array:
        """Take some rows of a stream."""
        ...

    def unembed(self, hidden: Array) -> NDArray[np.float32]:
        """Apply final norm and head: logits, (num_tokens, vocab_size) f32."""
        ...

    def make_caches(self) -> list[Cache[Array]]:
        """Make an empty cache for every layer."""
        ...

    def vector(self, values: NDArray[np.float32]) -> Array:
        """Bring a vector (hidden_size,) into the decoder's arrays, at its precision."""
        ...

    def steer(self, hidden: Array, vector: Array) -> Array:
        """Add a vector to every row; the stream is given away, as to a block."""
        ...

    def wave(self, rotary: RotaryTables, attention: Attention[Ints]) -> Wave[Array]:
        """Bring what belongs to a stream into the decoder's own arrays."""
        ...

    def rows(self, hidden: Array, rows: Ints) -> NDArray[np.float32]:
        """Finish the pending work and copy rows out as f32, (num_rows, hidden_size)."""
        ...

    def materialize(self, hidden: Array) -> None:
        """Finish the pending work on a stream.

        Once per block: a lazy evaluation would otherwise hold every weight that is
        opened and closed.
        """
        ...

    def rest(self) -> None:
        """Let go of the memory that only a run at work needs: it is over."""
        ...
