"""What a run is to do, what it may take, and the bytes that a wave of it takes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ster.decoder.contract import Footprint
from ster.stream.packing import Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a run is to do.

    Args:
        token_ids: Of each prompt.
        kinds: Of each prompt; only prompts of the same kind share tokens.
        num_blocks: Blocks that run, from the first on.
        rows: Rows that are held of each prompt, over all layers, with what reading
            them takes; none if empty.
        rows_per_token: The same of a token that is read.
        head: Final norm and head are used as well.
        logit_rows: Rows of logits that are held at once.
        new_tokens: Tokens that are written after each prompt; if there are any, the
            texts of a wave are held at once, with the keys and values of the prompt and
            of them, and a row of logits.
        max_prompts: Most prompts in a wave; None is any number.
        steerings: Streams that each prompt of a wave may have, steered differently.
        inner_points: Points inside a block that are held as it is done.
        repeats: The weights will be needed again: they stay in memory if they fit, even
            after a single wave.
    """

    token_ids: Sequence[Tokens]
    kinds: Sequence[Hashable]
    num_blocks: int
    rows: Sequence[int] = ()
    rows_per_token: int = 0
    head: bool = False
    logit_rows: int = 0
    new_tokens: int = 0
    max_prompts: int | None = None
    steerings: int = 1
    inner_points: int = 0
    repeats: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run's parts take, and what the process may take.

    Args:
        footprint: What the decoder takes.
        other_bytes: What the process holds beside the decoder's weights.
        held_bytes: What the weights of earlier runs still take. These are the first
            blocks, since every run begins with the first.
        memory_bytes: What the process may hold in all.
    """

    footprint: Footprint
    other_bytes: int
    memory_bytes: int
    held_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """What one wave holds, beside the weights."""

    num_prompts: int = 0
    num_tokens: int = 0
    num_prompt_tokens: int = 0
    num_rows: int = 0

    def with_prompt(self, num_tokens: int, added: int, rows: int) -> Load:
        """Add a prompt of so many tokens, ``added`` of them new to the wave."""
        return Load(
            num_prompts=self.num_prompts + 1,
            num_tokens=self.num_tokens + added,
            num_prompt_tokens=self.num_prompt_tokens + num_tokens,
            num_rows=self.num_rows + rows,
        )


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts bytes for one run."""

    work: Work
    budget: Budget

    def peak(self, load: Load, *, keep: bool) -> int:
        """Count the whole process with one wave at work.

        Args:
            load: The wave.
            keep: All blocks stay, those of earlier runs too; else none is held but the
                one that is open.
        """
        footprint, work = self.budget.footprint, self.work
        weights = footprint.head_bytes if work.head else 0
        weights += footprint.embedding_bytes if work.new_tokens else 0
        if keep:
            weights += sum(footprint.blocks[: work.num_blocks])
            weights = max(weights, self.budget.held_bytes)
        return (
            self.budget.other_bytes
            + footprint.fixed_bytes
            + footprint.open_bytes
            + weights
            + self._streams(load) * footprint.token_bytes
            + self._streams(load) * work.inner_points * footprint.point_bytes
            + load.num_prompt_tokens * work.steerings * footprint.key_bytes
            + load.num_rows * footprint.row_bytes
            + work.logit_rows * footprint.logit_bytes
            + self._texts(load)
        )

    def _streams(self, load: Load) -> int:
        """Count the rows of a wave's stream."""
        return load.num_tokens * self.work.steerings

    def _texts(self, load: Load) -> int:
        """Count what texts hold while they grow.

        Every text has room for the longest; one layer's keys and values are there
        twice, for they move to grow. One of several texts may be written anew, alone.
        """
        if not self.work.new_tokens:
            return 0
        footprint, texts = self.budget.footprint, load.num_prompts
        texts += texts > 1
        longest = max(map(len, self.work.token_ids)) + self.work.new_tokens
        layers = len(footprint.blocks)
        held = longest * footprint.cache_bytes * (layers + 1) // layers
        return texts * (held + footprint.choice_bytes)

    def fits(self, load: Load, *, keep: bool) -> bool:
        """Tell whether the peak is within the limit."""
        return self.peak(load, keep=keep) <= self.budget.memory_bytes

    def tokens(self, load: Load) -> int:
        """Count a wave's distinct tokens, and its lists of keys as if they were more.

        A list of keys counts as the tokens that would take as many bytes.
        """
        footprint = self.budget.footprint
        steerings = self.work.steerings
        keys = load.num_prompt_tokens * steerings * footprint.key_bytes
        return self._streams(load) + -(-keys // footprint.token_bytes)
