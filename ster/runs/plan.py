"""What a run will do and need, computed before it starts. Arithmetic only.

Reading, scoring and writing are planned alike. Prompts run in *waves*: consecutive
prompts that are packed into one stream. Where one wave holds them all, every block is
opened once and closed again. Where several are needed, the blocks stay in memory if
they fit beside a wave. If they do not, they are read anew for each wave, and waves are
as large as the memory allows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from ster.errors import CapacityError
from ster.runs.work import Budget, Counter, Load, Work
from ster.stream.packing import DistinctTokens
from ster.text import allowed_megabytes, counted, megabytes

# Few enough that a wave's stream is small beside any model's weights.
WAVE_TOKENS = 16384
# Texts that grow at once, and tokens that are read at once before they do: enough that
# products are fast, which more of them would not make faster.
MAX_TEXTS, READING_TOKENS = 256, 4096
# Rows that are held at once, where blocks stay and more waves cost nothing.
MAX_ROW_BYTES = 256 << 20
# Enough that a wave spends its time on products, not on reading weights.
ENOUGH_TOKENS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The waves of a run, and the most memory that the run takes.

    Args:
        waves: Consecutive ranges of prompts, in order.
        wave_tokens: Distinct tokens of each wave.
        num_prompt_tokens: Tokens of all prompts, before any is shared.
        num_blocks: Blocks that run.
        head: Final norm and head are used as well.
        keep: The weights stay in memory from wave to wave, and after the run.
        peak_bytes: Most memory of the whole process.
        memory_bytes: The limit that was planned for.
        kept_bytes: The peak of a run whose weights stay in memory.
        release: Weights of earlier runs have to leave the memory first.
        reading_tokens: Where texts are written, the most that are read in one stream.
    """

    waves: tuple[range, ...]
    wave_tokens: tuple[int, ...]
    num_prompt_tokens: int
    num_blocks: int
    head: bool
    keep: bool
    peak_bytes: int
    memory_bytes: int
    kept_bytes: int
    release: bool
    reading_tokens: int = 0

    @property
    def num_tokens(self) -> int:
        """Distinct tokens over all waves."""
        return sum(self.wave_tokens)

    def __str__(self) -> str:
        """Describe the plan in one line, for ``--verbose``."""
        is_one = len(self.waves) == 1
        sizes = sorted(map(len, self.waves))
        which = f"{sizes[0]} to {sizes[-1]} prompts each"
        if len(self.waves) <= 12 and not self.reading_tokens:  # texts come and go
            ranges = (f"{each.start + 1}..{each.stop}" for each in self.waves)
            which = f"prompts {', '.join(ranges)}"
        waves = "one wave" if is_one else f"{len(self.waves)} waves ({which})"
        read = "read once" if is_one else "read for each wave"
        weights = "resident" if self.keep else read
        prompts = counted(sum(map(len, self.waves)), "prompt")
        head = " and the head" if self.head else ""
        return (
            f"plan: {prompts}, {counted(self.num_prompt_tokens, 'token')}, "
            f"{self.num_tokens} distinct; "
            f"{counted(self.num_blocks, 'block')}{head}, weights {weights}; "
            f"{waves}; peak {megabytes(self.peak_bytes)} of "
            f"{allowed_megabytes(self.memory_bytes)} that may be used"
        )


def plan_run(work: Work, budget: Budget) -> Plan:
    """Plan a run so that it fits.

    Raises:
        CapacityError: Not even one prompt at a time fits; says what would be needed.
    """
    counter = Counter(work, budget)
    largest = _largest(work)
    _refuse_if_too_large(counter.peak(largest, keep=False), work, budget)
    keep = _weights_fit(counter, largest)
    most = max(WAVE_TOKENS, counter.tokens(largest)) if keep else None
    most_rows = max(
        MAX_ROW_BYTES // max(1, budget.footprint.row_bytes), largest.num_rows
    )
    texts = _texts_at_once(counter, largest, keep=keep) if work.new_tokens else None

    def fits(load: Load) -> bool:
        if work.max_prompts is not None and load.num_prompts > work.max_prompts:
            return False
        if texts is not None:
            return load.num_prompts <= texts.num_prompts
        if most is not None and counter.tokens(load) > most:
            return False
        if most is not None and load.num_rows > most_rows:
            return False
        return counter.fits(load, keep=keep)

    waves = _split(work, fits)
    loads = [texts or load for _, load in waves]
    keep = keep and (work.repeats or len(waves) > 1)
    kept_bytes = max(counter.peak(load, keep=True) for load in loads)
    peak_bytes = kept_bytes
    release = False
    if not keep:
        streamed = max(counter.peak(load, keep=False) for load in loads)
        # Whoever stayed may have the head among them, or blocks that this run uses.
        peak_bytes = min(budget.held_bytes + streamed, kept_bytes)
        release = peak_bytes > budget.memory_bytes
        peak_bytes = streamed if release else peak_bytes
    return Plan(
        waves=tuple(wave for wave, _ in waves),
        wave_tokens=tuple(load.num_tokens for _, load in waves),
        num_prompt_tokens=sum(load.num_prompt_tokens for _, load in waves),
        num_blocks=work.num_blocks,
        head=work.head,
        keep=keep,
        peak_bytes=peak_bytes,
        memory_bytes=budget.memory_bytes,
        kept_bytes=kept_bytes,
        release=release,
        reading_tokens=0 if texts is None else texts.num_tokens,
    )


def _largest(work: Work) -> Load:
    """Make a wave of the longest prompt alone."""
    longest = max(map(len, work.token_ids))
    return Load().with_prompt(longest, longest, max(work.rows, default=0))


def _texts_at_once(counter: Counter, largest: Load, *, keep: bool) -> Load:
    """Choose how many texts grow together, and how many tokens are read at once.

    More texts do more for the speed than more tokens. These may be listed twice, for
    texts that share them.
    """
    lengths = [*map(len, counter.work.token_ids)]
    tokens = largest.num_tokens
    wanted = min(len(lengths), counter.work.max_prompts or MAX_TEXTS, MAX_TEXTS)

    def load(num_texts: int, num_tokens: int) -> Load:
        most = min(sum(lengths), num_texts * largest.num_tokens)
        return Load(num_texts, min(num_tokens, most), min(2 * num_tokens, most))

    texts = 1 + bisect_left(
        range(2, wanted + 1),
        True,
        key=lambda each: not counter.fits(load(each, tokens), keep=keep),
    )
    while tokens < load(texts, READING_TOKENS).num_tokens:
        if not counter.fits(load(texts, 2 * tokens), keep=keep):
            break
        tokens *= 2
    return load(texts, tokens)


def _weights_fit(counter: Counter, largest: Load) -> bool:
    """Tell whether the weights fit in memory beside a wave of useful size.

    That is the longest prompt at least, and no more than there is.
    """
    if counter.work.new_tokens:  # fewer texts at a time cost less than that
        return counter.fits(largest, keep=True)
    prompts = len(counter.work.token_ids)
    prompts = min(prompts, counter.work.max_prompts or prompts)
    enough = max(ENOUGH_TOKENS, counter.tokens(largest))
    if prompts * counter.tokens(largest) <= enough:
        tokens = prompts * largest.num_tokens
        rows = prompts * max(counter.work.rows, default=0)
        load = Load(prompts, tokens, tokens, rows)
    else:
        # As many prompts as tokens: the worst case of sharing.
        rows = min(enough * counter.work.rows_per_token, sum(counter.work.rows))
        rows = max(rows, largest.num_rows)
        load = Load(min(prompts, enough), enough, num_rows=rows)
    return counter.fits(load, keep=True)


def _split(work: Work, fits: Callable[[Load], bool]) -> list[tuple[range, Load]]:
    """Cut prompts into waves, each as large as fits and of one prompt at least."""
    waves: list[tuple[range, Load]] = []
    distinct, start, load = DistinctTokens(), 0, Load()
    prompts = zip(work.token_ids, work.kinds, strict=True)
    for index, (prompt, kind) in enumerate(prompts):
        size, rows = len(prompt), work.rows[index] if work.rows else 0
        larger = load.with_prompt(size, distinct.add(prompt, kind), rows)
        if index > start and not fits(larger):
            waves.append((range(start, index), load))
            distinct, start, load = DistinctTokens(), index, Load()
            larger = load.with_prompt(size, distinct.add(prompt, kind), rows)
        load = larger
    waves.append((range(start, len(work.token_ids)), load))
    return waves


def _refuse_if_too_large(needed: int, work: Work, budget: Budget) -> None:
    if needed > budget.memory_bytes:
        lengths = [len(ids) for ids in work.token_ids]
        allowed = allowed_megabytes(budget.memory_bytes)
        raise CapacityError(
            f"this run needs {megabytes(needed)} of memory and may use {allowed}; "
            "allow more with --memory, or use shorter prompts",
            field="memory",
            found=needed,
            expected=budget.memory_bytes,
            prompt=lengths.index(max(lengths)) + 1,
        )
