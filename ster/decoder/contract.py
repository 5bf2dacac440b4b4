"""What a decoder is to a run: the page to read first.

``Weights`` are what is held of a checkpoint on a device from run to run; each run has a
``Decoder`` over them. The residual stream is not hidden in it: the loop holds it in a
local variable and hands it from block to block, so that reading the stream, or adding
to it, is a plain statement between two of them.

There are two implementations of the same shape, ``decoder.numpy`` (cpu) and
``decoder.mlx`` (metal, cuda). Runs know this page and never an implementation.

The stream has no batch axis: ``num_tokens`` is the packed axis of ``stream.packing``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.architecture.spec import ModelSpec
from ster.checkpoint.stored import Stored
from ster.decoder.sampling import Drawing
from ster.stream.attention import Attention
from ster.stream.changes import Moves
from ster.stream.packing import Ints
from ster.stream.rotary import RotaryTables
from ster.stream.texts import Entering, Leaving, NextTokens

Array = TypeVar("Array")
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerInputs(Generic[Array]):
    """What a layer needs to know of a packed stream, in the decoder's own arrays.

    Args:
        rotary: The angles of its tokens; None where the layer turns nothing.
        attention: Who attends to whom: within the stream, or to what a cache holds.
        entering: Where a cache puts the keys of texts that begin with this stream.
    """

    rotary: RotaryTables[Array] | None
    attention: Attention[Array] | NextTokens[Array]
    entering: Entering[Array] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Points(Generic[Array]):
    """What of a block's inside is wanted, and what it was, once the block has run.

    ``attn_out`` is what the attention half adds to the stream, after its out-norm and
    the residual multiplier where a family has them; ``mlp_out`` is what the
    feed-forward half adds, likewise. ``resid_mid`` is the stream between the halves,
    which only a block that runs one after the other has. To rounding,

        resid_mid = resid_pre + attn_out
        resid_post = resid_pre + attn_out + mlp_out,

    where resid_pre is the stream that the block was given, and resid_post the stream
    that it returns.

    Args:
        wanted: Of ``points.POINTS``, all but ``resid_post``; no ``resid_mid`` of a
            parallel block.
        found: Filled by the block: by point, the rows that it returns, in their order,
            (num_queries, hidden_size), f32 whatever the precision. They are not
            overwritten; on a device they are evaluated with what the block returns.
    """

    wanted: frozenset[str]
    found: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(Generic[Array]):
    """The next tokens of some texts.

    Args:
        token_ids: (num_texts,); -1 where the logits are not all finite.
        is_close: Which of them another rounding might choose otherwise, (num_texts,).
    """

    token_ids: Array
    is_close: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a decoder takes, in bytes, for the plan.

    Args:
        blocks: Each block that stays in memory.
        open_bytes: One block that is opened and closed, with what opening takes on top.
        head_bytes: Final norm and head.
        embedding_bytes: What of the embedding is held where texts are written.
        token_bytes: One token of a stream, its share of everything that grows with it.
        point_bytes: The same token again for each point inside a block that is read.
        key_bytes: One token of one prompt, shared or not: attention lists its keys.
        row_bytes: One row that is read out.
        logit_bytes: One row of logits, with what its use takes.
        choice_bytes: One row of logits that a token is chosen from.
        cache_bytes: The keys and values of one token, in all layers.
        fixed_bytes: Scratch that grows with none of them.
    """

    blocks: tuple[int, ...]
    open_bytes: int
    head_bytes: int
    embedding_bytes: int
    token_bytes: int
    point_bytes: int
    key_bytes: int
    row_bytes: int
    logit_bytes: int
    choice_bytes: int
    cache_bytes: int
    fixed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """How much memory there is where a decoder computes, in bytes.

    Args:
        held: What this process holds already, weights included.
        limit: What it may hold where nobody says so.
        peak: The most that it has held so far.
    """

    held: int
    limit: int
    peak: int = 0


class Cache(Protocol[Array]):
    """The keys and values of one layer, of texts that grow; at the run's precision.

    ``stream.texts`` says which lie where.
    """

    def enter(self, keys: Array, values: Array, entering: Entering[Array]) -> None:
        """Take those of a stream, (num_tokens, num_key_value_heads, head_dim)."""
        ...

    def append(self, keys: Array, values: Array, following: NextTokens[Array]) -> None:
        """Take those of each text's new token, (num_texts, num_key_value_heads, ...).

        What is held already is not copied at every call.
        """
        ...

    def leave(self, leaving: Leaving) -> None:
        """Let go of those of texts that leave."""
        ...


class Block(Protocol[Array]):
    """One block with its weights: attention and feed-forward part."""

    def __call__(
        self,
        hidden: Array,
        inputs: LayerInputs[Array],
        cache: Cache[Array] | None,
        points: Points[Array] | None = None,
    ) -> Array:
        """Run the block.

        Args:
            hidden: resid_post of the block before, (num_tokens, hidden_size), f32. It
                is given away: what is returned may lie in its memory.
            inputs: What belongs to the stream.
            cache: Takes the keys and values; where each text has one new token, it
                holds what these attend to.
            points: Takes what of the block's inside is wanted; None is nothing.

        Returns:
            resid_post of the rows that ``inputs.attention`` wants, (num_queries,
            hidden_size), f32.
        """
        ...


class Steers(Protocol[Array]):
    """The part of a decoder that does something to a stream between two blocks."""

    def take(self, hidden: Array, rows: Ints) -> Array:
        """Take some rows of a stream."""
        ...

    def vectors(self, values: F32) -> Array:
        """Bring vectors (num_vectors, hidden_size) into the decoder's arrays."""
        ...

    def steer(self, hidden: Array, vectors: Array, which: Ints | None) -> Array:
        """Add a vector to every row; the stream is given away, as to a block.

        Args:
            hidden: The stream.
            vectors: As ``vectors`` brings them.
            which: Which of them each row gets, (num_tokens,); None is the first.
        """
        ...

    def moves(self, moves: Moves[F32]) -> Moves[Array]:
        """Bring moves into the decoder's own arrays."""
        ...

    def move(self, hidden: Array, moves: Moves[Array], which: Ints | None) -> Array:
        """Move every row along a direction; the stream is given away, as to a block.

        ``stream.changes.Move`` says how. It takes the memory that ``steer`` takes.

        Args:
            hidden: The stream.
            moves: As ``moves`` brings them.
            which: Which of them each row gets, (num_tokens,); None is the first.
        """
        ...


class Decoder(Steers[Array], Protocol[Array]):
    """A checkpoint's blocks at work in one run, on one device, at one precision."""

    @property
    def spec(self) -> ModelSpec:
        """Return what the decoder is."""
        ...

    @property
    def keeps_blocks(self) -> bool:
        """Tell whether blocks stay in memory once they have been opened."""
        ...

    @property
    def max_attention_pairs(self) -> int:
        """Return how many query-key pairs one attention batch may hold."""
        ...

    @property
    def max_attention_keys(self) -> int:
        """Return how many keys one attention batch may gather."""
        ...

    @property
    def works_ahead(self) -> bool:
        """Tell whether ``choose`` returns before its work is done."""
        ...

    def embed(self, token_ids: Ints | Array, position_ids: Ints) -> Array:
        """Gather embedding rows, (num_tokens, hidden_size); the table stays as it is.

        Every id is below ``spec.vocab_size``; they may be those that ``choose`` made.
        Learned positions are added, if there are any.
        """
        ...

    def block(self, layer: int) -> AbstractContextManager[Block[Array]]:
        """Open a block; its weights live as long as the ``with``, unless they stay."""
        ...

    def unembed(self, hidden: Array) -> F32:
        """Apply final norm and head: logits, (num_tokens, vocab_size) f32."""
        ...

    def log_probabilities(
        self, hidden: Array, places: Ints, token_ids: Ints
    ) -> NDArray[np.float64]:
        """Compute how likely tokens are, (num_tokens,).

        Args:
            hidden: Rows of the stream after the last block.
            places: The row that tells of each token.
            token_ids: The tokens.
        """
        ...

    def choose(self, hidden: Array, drawing: Drawing | None) -> Chosen[Array]:
        """Choose the token after each row, (num_rows, hidden_size).

        Args:
            hidden: Rows of the stream after the last block.
            drawing: How tokens are drawn; None takes the likeliest.
        """
        ...

    def to_host(self, chosen: Array) -> Ints:
        """Finish the work on what was chosen, and copy it out."""
        ...

    def make_caches(self, max_texts: int, max_tokens: int) -> list[Cache[Array]]:
        """Make an empty cache for every layer, for so many texts of so many tokens."""
        ...

    def bring_rotary(self, tables: RotaryTables[F32]) -> RotaryTables[Array]:
        """Bring rotary tables into the decoder's own arrays."""
        ...

    def bring_attention(self, attention: Attention[Ints]) -> Attention[Array]:
        """Bring who attends to whom into the decoder's own arrays."""
        ...

    def bring_following(self, following: NextTokens[Any]) -> NextTokens[Array]:
        """Bring what new tokens attend to into the decoder's own arrays."""
        ...

    def bring_entering(self, entering: Entering[Ints]) -> Entering[Array]:
        """Bring where keys go into the decoder's own arrays."""
        ...

    def rows(self, hidden: Array, rows: Ints) -> F32:
        """Finish the pending work and copy rows out as f32, (num_rows, hidden_size)."""
        ...

    def materialize(self, hidden: Array, *points: Array) -> None:
        """Finish the pending work on a stream, and on points of the block that made it.

        Once per block: a lazy evaluation would otherwise hold every weight that is
        opened and closed.
        """
        ...

    def close(self) -> None:
        """Let go of what only this run needs; refuse what failed and was not seen."""
        ...


class Weights(Protocol):
    """What is held of a checkpoint on a device; threads may share it."""

    @property
    def held_bytes(self) -> int:
        """Return the memory of the blocks and the head that stay from run to run."""
        ...

    def add(self, tensors: Mapping[str, Stored]) -> None:
        """Give it more tensors, by the names of their places in the spec."""
        ...

    def release(self) -> None:
        """Let go of the blocks and the head that stayed."""
        ...
