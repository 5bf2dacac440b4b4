"""What an extraction will do and need, computed before it starts. Arithmetic only.

Prompts run in *waves* of consecutive prompts, each packed into one stream. Where one
wave holds them all, every block is opened once and closed again. Where several are
needed, the blocks stay resident if they fit beside a wave; else they are read anew for
each wave, and waves are as large as the memory allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ster.decoder.contract import Footprint
from ster.errors import CapacityError
from ster.stream.packing import DistinctTokens
from ster.text import counted

# Few enough that a wave's stream is small beside any model's weights.
WAVE_TOKENS = 16384
# Enough that a wave's products and not its weights bound the work.
ENOUGH_TOKENS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionPlan:
    """The waves of a run, and the memory that it takes at most.

    Args:
        waves: Consecutive ranges of prompts, in order.
        wave_tokens: Distinct tokens of each wave.
        num_prompt_tokens: Tokens of all prompts, before any is shared.
        num_blocks: Blocks that run: up to the highest requested layer.
        resident: The blocks' weights stay in memory from wave to wave.
        peak_bytes: Memory of the whole process.
        memory_bytes: The limit that was planned for.
    """

    waves: tuple[range, ...]
    wave_tokens: tuple[int, ...]
    num_prompt_tokens: int
    num_blocks: int
    resident: bool
    peak_bytes: int
    memory_bytes: int

    @property
    def num_tokens(self) -> int:
        """Distinct tokens over all waves."""
        return sum(self.wave_tokens)

    def __str__(self) -> str:
        """Describe the plan in one line, for ``--verbose``."""
        weights = "resident" if self.resident else "read for each wave"
        waves = "one wave" if len(self.waves) == 1 else f"{len(self.waves)} waves"
        prompts = counted(sum(map(len, self.waves)), "prompt")
        return (
            f"plan: {prompts}, {counted(self.num_prompt_tokens, 'token')}, "
            f"{self.num_tokens} distinct; "
            f"{counted(self.num_blocks, 'block')}, weights {weights}; "
            f"{waves}; {describe_peak(self.peak_bytes, self.memory_bytes)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a wave takes, and what it may.

    Args:
        footprint: What the decoder takes.
        num_layers: Layers whose rows are kept.
        held_bytes: What the process holds already.
        memory_bytes: What it may hold.
    """

    footprint: Footprint
    num_layers: int
    held_bytes: int
    memory_bytes: int

    def peak(self, num_blocks: int, num_prompts: int, num_tokens: int) -> int:
        """Count the bytes of a wave beside so many resident blocks."""
        weights = self.footprint.open_bytes + num_blocks * self.footprint.block_bytes
        rows = num_prompts * self.num_layers * self.footprint.row_bytes
        stream = num_tokens * self.footprint.token_bytes
        return self.held_bytes + self.footprint.fixed_bytes + weights + rows + stream

    def load(self, num_tokens: int, num_prompt_tokens: int) -> int:
        """Count a wave in distinct tokens, its lists of keys as so many more."""
        keys = num_prompt_tokens * self.footprint.key_bytes
        return num_tokens + -(-keys // self.footprint.token_bytes)

    def fits(self, num_blocks: int, num_prompts: int, num_tokens: int) -> bool:
        """Tell whether that is within the limit."""
        return self.peak(num_blocks, num_prompts, num_tokens) <= self.memory_bytes

    def allows(self, num_blocks: int, most: int) -> Callable[[int, int], bool]:
        """Return what tells whether prompts with so many tokens may be one wave."""
        return lambda n, tokens: tokens <= most and self.fits(num_blocks, n, tokens)


def plan_extraction(
    prompts: Sequence[Sequence[int]],
    rotary_lengths: Sequence[int],
    *,
    num_blocks: int,
    budget: Budget,
    keep_resident: bool,
) -> ExtractionPlan:
    """Plan a run so that it fits.

    Args:
        prompts: Token ids of each prompt.
        rotary_lengths: As for ``packing``.
        num_blocks: Blocks to run.
        budget: What there is.
        keep_resident: Keep blocks that fit even for one wave: a run will follow.

    Raises:
        CapacityError: Not even one prompt at a time fits; says what would be needed.
    """
    alone = max(budget.load(len(ids), len(ids)) for ids in prompts)
    refuse_if_too_large(budget.peak(0, 1, alone), budget.memory_bytes)
    enough = max(ENOUGH_TOKENS, alone)
    # As many prompts as tokens: the worst case of sharing.
    resident = budget.fits(num_blocks, min(len(prompts), enough), enough)
    usual = max(WAVE_TOKENS, alone)
    held_blocks, most = (num_blocks, usual) if resident else (0, budget.memory_bytes)
    allows = budget.allows(held_blocks, most)
    waves = split_waves(prompts, rotary_lengths, allows, budget.load)
    if len(waves) == 1 and not keep_resident:
        resident, held_blocks = False, 0
    return ExtractionPlan(
        waves=tuple(wave for wave, _ in waves),
        wave_tokens=tuple(tokens for _, tokens in waves),
        num_prompt_tokens=sum(map(len, prompts)),
        num_blocks=num_blocks,
        resident=resident,
        peak_bytes=_largest(prompts, waves, budget, held_blocks),
        memory_bytes=budget.memory_bytes,
    )


def split_waves(
    prompts: Sequence[Sequence[int]],
    rotary_lengths: Sequence[int],
    fits: Callable[[int, int], bool],
    load: Callable[[int, int], int] = lambda num_tokens, _: num_tokens,
) -> list[tuple[range, int]]:
    """Cut prompts into consecutive waves, each as large as fits, of one at least.

    Args:
        prompts: Token ids of each prompt.
        rotary_lengths: As for ``plan_extraction``.
        fits: Tells whether a number of prompts with such a load does.
        load: Counts the load of so many distinct tokens and tokens of prompts.

    Returns:
        Each wave's prompts and its distinct tokens.
    """
    waves: list[tuple[range, int]] = []
    distinct, start, tokens, keys = DistinctTokens(), 0, 0, 0
    for index, (prompt, length) in enumerate(zip(prompts, rotary_lengths, strict=True)):
        added, keys = distinct.add(prompt, length), keys + len(prompt)
        over = not fits(index + 1 - start, load(tokens + added, keys))
        if over and index > start:
            waves.append((range(start, index), tokens))
            distinct, start, tokens, keys = DistinctTokens(), index, 0, len(prompt)
            added = distinct.add(prompt, length)
        tokens += added
    waves.append((range(start, len(prompts)), tokens))
    return waves


def _largest(
    prompts: Sequence[Sequence[int]],
    waves: Sequence[tuple[range, int]],
    budget: Budget,
    held_blocks: int,
) -> int:
    """Find what the largest wave takes."""
    loads = [budget.load(t, sum(len(prompts[i]) for i in wave)) for wave, t in waves]
    sizes = [len(wave) for wave, _ in waves]
    return max(
        budget.peak(held_blocks, n, t) for n, t in zip(sizes, loads, strict=True)
    )


def megabytes(count: int) -> str:
    """Write a number of bytes as megabytes, rounded up."""
    return f"{-(-count // 10**6)} MB"


def describe_peak(peak_bytes: int, memory_bytes: int) -> str:
    """Say what a plan takes of what there is."""
    return f"peak {megabytes(peak_bytes)} of {megabytes(memory_bytes)} that may be used"


def refuse_if_too_large(needed: int, memory_bytes: int) -> None:
    """Refuse a run that does not fit however it is cut.

    Raises:
        CapacityError: Says what it would need.
    """
    if needed > memory_bytes:
        raise CapacityError(
            f"this run needs {megabytes(needed)} of memory and may use "
            f"{megabytes(memory_bytes)}; allow more with --memory, or use shorter "
            "prompts"
        )
