"""What a run will do and need, computed before it starts. Arithmetic only.

Reading, scoring and writing are planned alike. Prompts run in *waves*: consecutive
prompts that are packed into one stream. Where one wave holds them all, every block is
opened once and closed again. Where several are needed, the blocks stay in memory if
they fit beside a wave. If they do not, they are read anew for each wave, and waves are
as large as the memory allows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from ster.decoder.contract import Footprint
from ster.errors import CapacityError
from ster.stream.packing import DistinctTokens, Tokens
from ster.text import allowed_megabytes, counted, megabytes

# Few enough that a wave's stream is small beside any model's weights.
WAVE_TOKENS = 16384
# Texts that grow at once, and tokens that are read at once before they do: enough that
# products are fast, which more of them would not make faster.
MAX_TEXTS, READING_TOKENS = 256, 4096
# Enough that a wave spends its time on products, not on reading weights.
ENOUGH_TOKENS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a run is to do.

    Args:
        token_ids: Of each prompt.
        kinds: Of each prompt; only prompts of the same kind share tokens.
        num_blocks: Blocks that run, from the first on.
        rows_per_prompt: Rows that are read out of each prompt.
        head: Final norm and head are used as well.
        logit_rows: Rows of logits that are held at once.
        new_tokens: Tokens that are written after each prompt; if there are any, the
            texts of a wave are held at once, with the keys and values of the prompt and
            of them, and a row of logits.
        max_prompts: Most prompts in a wave; None is any number.
        steerings: Streams that each prompt of a wave may have, steered differently.
        repeats: The weights will be needed again: they stay in memory if they fit, even
            after a single wave.
    """

    token_ids: Sequence[Tokens]
    kinds: Sequence[Hashable]
    num_blocks: int
    rows_per_prompt: int = 0
    head: bool = False
    logit_rows: int = 0
    new_tokens: int = 0
    max_prompts: int | None = None
    steerings: int = 1
    repeats: bool = False


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
class _Load:
    """What one wave holds, beside the weights."""

    num_prompts: int = 0
    num_tokens: int = 0
    num_prompt_tokens: int = 0

    def with_prompt(self, num_tokens: int, added: int) -> _Load:
        """Add a prompt of so many tokens, ``added`` of them new to the wave."""
        return _Load(
            num_prompts=self.num_prompts + 1,
            num_tokens=self.num_tokens + added,
            num_prompt_tokens=self.num_prompt_tokens + num_tokens,
        )


@dataclass(frozen=True, slots=True)
class _Counter:
    """Counts bytes for one run."""

    work: Work
    budget: Budget

    def peak(self, load: _Load, *, keep: bool) -> int:
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
            + load.num_prompt_tokens * work.steerings * footprint.key_bytes
            + load.num_prompts * work.rows_per_prompt * footprint.row_bytes
            + work.logit_rows * footprint.logit_bytes
            + self._texts(load)
        )

    def _streams(self, load: _Load) -> int:
        """Count the rows of a wave's stream."""
        return load.num_tokens * self.work.steerings

    def _texts(self, load: _Load) -> int:
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

    def fits(self, load: _Load, *, keep: bool) -> bool:
        """Tell whether the peak is within the limit."""
        return self.peak(load, keep=keep) <= self.budget.memory_bytes

    def tokens(self, load: _Load) -> int:
        """Count a wave's distinct tokens, and its lists of keys as if they were more.

        A list of keys counts as the tokens that would take as many bytes.
        """
        footprint = self.budget.footprint
        steerings = self.work.steerings
        keys = load.num_prompt_tokens * steerings * footprint.key_bytes
        return self._streams(load) + -(-keys // footprint.token_bytes)


def plan_run(work: Work, budget: Budget) -> Plan:
    """Plan a run so that it fits.

    Raises:
        CapacityError: Not even one prompt at a time fits; says what would be needed.
    """
    counter = _Counter(work, budget)
    largest = _largest(work)
    _refuse_if_too_large(counter.peak(largest, keep=False), work, budget)
    keep = _weights_fit(counter, largest)
    most = max(WAVE_TOKENS, counter.tokens(largest)) if keep else None
    texts = _texts_at_once(counter, largest, keep=keep) if work.new_tokens else None

    def fits(load: _Load) -> bool:
        if work.max_prompts is not None and load.num_prompts > work.max_prompts:
            return False
        if texts is not None:
            return load.num_prompts <= texts.num_prompts
        if most is not None and counter.tokens(load) > most:
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


def _largest(work: Work) -> _Load:
    """Make a wave of the longest prompt alone."""
    longest = max(map(len, work.token_ids))
    return _Load().with_prompt(longest, longest)


def _texts_at_once(counter: _Counter, largest: _Load, *, keep: bool) -> _Load:
    """Choose how many texts grow together, and how many tokens are read at once.

    More texts do more for the speed than more tokens. These may be listed twice, for
    texts that share them.
    """
    lengths = [*map(len, counter.work.token_ids)]
    tokens = largest.num_tokens
    wanted = min(len(lengths), counter.work.max_prompts or MAX_TEXTS, MAX_TEXTS)

    def load(num_texts: int, num_tokens: int) -> _Load:
        most = min(sum(lengths), num_texts * largest.num_tokens)
        return _Load(num_texts, min(num_tokens, most), min(2 * num_tokens, most))

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


def _weights_fit(counter: _Counter, largest: _Load) -> bool:
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
        load = _Load(prompts, tokens, tokens)
    else:
        # As many prompts as tokens: the worst case of sharing.
        load = _Load(min(prompts, enough), enough)
    return counter.fits(load, keep=True)


def _split(work: Work, fits: Callable[[_Load], bool]) -> list[tuple[range, _Load]]:
    """Cut prompts into waves, each as large as fits and of one prompt at least."""
    waves: list[tuple[range, _Load]] = []
    distinct, start, load = DistinctTokens(), 0, _Load()
    prompts = zip(work.token_ids, work.kinds, strict=True)
    for index, (prompt, kind) in enumerate(prompts):
        size = len(prompt)
        larger = load.with_prompt(size, distinct.add(prompt, kind))
        if index > start and not fits(larger):
            waves.append((range(start, index), load))
            distinct, start, load = DistinctTokens(), index, _Load()
            larger = load.with_prompt(size, distinct.add(prompt, kind))
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
