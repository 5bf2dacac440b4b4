"""Many answers at once: each prompt at each strength, beside transformers and mlx-lm.

Every program writes the same number of tokens for each row, the likeliest each time:
the model is one whose texts never end. Rates are of tokens that were written over the
time of the whole call, prompts included, in a process whose model is loaded and warm.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import steered, tables
from benchmarks.cases import read_facts, write_prompts
from benchmarks.commands import PYTHON, Setup
from benchmarks.process import Run, run, say
from benchmarks.rates import count_same
from benchmarks.steered import Steering

MLX_DEVICES = ("metal", "mlx-cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is written.

    Args:
        prompts: How many.
        strengths: Each prompt is answered at each of them.
        new_tokens: Of each answer.
        batch_sizes: Of the transformers script; the best counts.
        one_by_one: So many rows are written one after the other.
    """

    prompts: int = 20
    strengths: tuple[float, ...] = (-8.0, -4.0, 0.0, 4.0, 8.0)
    new_tokens: int = 64
    batch_sizes: tuple[int, ...] = (8, 16, 32, 64, 100)
    one_by_one: int = 5

    @property
    def rows(self) -> int:
        """Answers in all."""
        return self.prompts * len(self.strengths)

    @property
    def tokens(self) -> int:
        """Written tokens in all."""
        return self.rows * self.new_tokens


def sizes_on(device: str) -> Sizes:
    """Return the sizes of a device; on a GPU small batches are slow and never best."""
    return Sizes() if device == "cpu" else Sizes(batch_sizes=(32, 64, 100))


SHORT = Sizes(
    prompts=2, strengths=(-4.0, 0.0), new_tokens=4, batch_sizes=(2, 4), one_by_one=1
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One line of the table.

    Args:
        name: Of the program.
        rate: Tokens a second.
        peak_bytes: The most memory of its process; None where it wrote a part only.
        same: How many texts of how many are ster's, token by token.
    """

    name: str
    rate: float
    peak_bytes: int | None
    same: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every program is given, and where what it writes goes."""

    setup: Setup
    steering: Steering
    sizes: Sizes
    prompts: Path

    def ster(self, *more: str) -> list[str]:
        """Return ster's command line."""
        flags = steered.ster_flags(self.setup, self.steering)
        return [*PYTHON, "benchmarks.answers_ster", *flags, *self.flags("ster"), *more]

    def peer(self, batch_size: int) -> list[str]:
        """Return that of the transformers script."""
        flags = steered.peer_flags(self.setup, self.steering)
        words = [*PYTHON, "benchmarks.answers_peer", *flags, *self.flags("peer")]
        return [*words, "--batch-size", str(batch_size)]

    def mlx_lm(self) -> list[str]:
        """Return mlx-lm's, which does not steer: as many rows, of each prompt alike."""
        return [
            *(*PYTHON, "benchmarks.mlx_lm_script", "batch"),
            *("--model", str(self.steering.model), "--device", self.setup.device),
            *("--width", self.setup.precision, "--input", str(self.prompts)),
            *("--copies", str(len(self.sizes.strengths))),
            *("--max-new-tokens", str(self.sizes.new_tokens)),
            *("--output", str(self.written("mlx-lm"))),
        ]

    def flags(self, who: str) -> list[str]:
        """Return what the steering programs are told alike; a list may begin with -."""
        strengths = ",".join(map(str, self.sizes.strengths))
        return [
            *("--input", str(self.prompts), f"--strengths={strengths}"),
            *("--max-new-tokens", str(self.sizes.new_tokens)),
            *("--output", str(self.written(who))),
        ]

    def written(self, who: str) -> Path:
        """Return where a program's tokens go."""
        return self.setup.work / f"answers-{who}.json"

    def tokens(self, who: str) -> list[list[int]]:
        """Read them; each row has to have all of them."""
        rows: list[list[int]] = json.loads(self.written(who).read_bytes())
        check_rows(who, rows, self.sizes)
        return rows


def table(setup: Setup, data: Path | None, sizes: Sizes) -> str:
    """Measure and draw."""
    say(f"{sizes.prompts} prompts at {len(sizes.strengths)} strengths")
    prompts = steered.spread(read_facts(data), sizes.prompts)
    work = Work(
        setup=setup,
        steering=steered.prepare(setup),
        sizes=sizes,
        prompts=write_prompts(setup.work / "asked.json", prompts),
    )
    titles = (
        f"{sizes.prompts} prompts × {len(sizes.strengths)} strengths × "
        f"{sizes.new_tokens} tokens, layer {work.steering.layer}",
        "tokens/s",
        "the first is as fast times",
        "peak memory",
        "same tokens as the first's",
    )
    programs = list(measure(work))
    return tables.table(titles, [row(each, programs[0].rate) for each in programs])


def measure(work: Work) -> Iterator[Program]:
    """Run all programs, ster and transformers in turn."""
    sizes = work.sizes
    tried = {size: run(work.peer(size)) for size in sizes.batch_sizes}
    for size, one in tried.items():
        say(f"  transformers at batch size {size}: {tables.seconds(took(one))}")
    best = min(tried, key=lambda size: took(tried[size]))
    ours, theirs = [run(work.ster())], [tried[best]]
    while len(ours) < work.setup.runs:
        ours.append(run(work.ster()))
        theirs.append(run(work.peer(best)))
    tokens = work.tokens("ster")
    yield program("ster, all in one batch", ours, sizes.tokens)
    same = count_same(tokens, work.tokens("peer"))
    yield program(f"transformers, batches of {best}", theirs, sizes.tokens, same)
    alone = run(work.ster("--one-by-one", str(sizes.one_by_one)))
    rows = answer_of(alone)["rows"]
    name = f"ster, one prompt at a time ({rows} of {sizes.rows})"
    yield program(name, [alone], rows * sizes.new_tokens, whole=False)
    if work.setup.device in MLX_DEVICES:
        yield from measure_mlx_lm(work, tokens)


def measure_mlx_lm(work: Work, tokens: list[list[int]]) -> Iterator[Program]:
    """Let mlx-lm write as many rows; those without steering are compared."""
    runs = [run(work.mlx_lm()) for _ in range(work.setup.runs)]
    answer = answer_of(runs[0])
    if answer is None:
        yield Program(name="mlx-lm: not installed", rate=0, peak_bytes=None)
        return
    strengths = work.sizes.strengths
    plain = range(strengths.index(0.0), len(tokens), len(strengths))
    written = work.tokens("mlx-lm")
    same = count_same([tokens[at] for at in plain], [written[at] for at in plain])
    name = f"mlx-lm, batch_generate of {answer['size']}, not steered"
    yield program(name, runs, work.sizes.tokens, same)


def program(
    name: str,
    runs: Sequence[Run],
    tokens: int,
    same: tuple[int, int] | None = None,
    *,
    whole: bool = True,
) -> Program:
    """Take the median of some runs."""
    return Program(
        name=name,
        rate=tokens / median(map(took, runs)),
        peak_bytes=max(one.peak_bytes for one in runs) if whole else None,
        same=same,
    )


def row(one: Program, first: float) -> tuple[str, ...]:
    """Draw one line."""
    if not one.rate:
        return (one.name, *["–"] * 4)
    return (
        one.name,
        f"{one.rate:.1f}",
        tables.fine_ratio(first, one.rate),
        "–" if one.peak_bytes is None else tables.megabytes(one.peak_bytes),
        "–" if one.same is None else f"{one.same[0]} of {one.same[1]}",
    )


def check_rows(who: str, rows: list[list[int]], sizes: Sizes) -> None:
    """Refuse to compare programs that did not write equally much."""
    lengths = sorted({len(each) for each in rows})
    if len(rows) != sizes.rows or lengths != [sizes.new_tokens]:
        raise SystemExit(
            f"{who} wrote {len(rows)} rows of {lengths} tokens, "
            f"not {sizes.rows} of {sizes.new_tokens}"
        )


def took(one: Run) -> float:
    """Return the seconds that a program measured itself."""
    seconds: float = answer_of(one)["seconds"]
    return seconds


def answer_of(one: Run) -> Any:  # noqa: ANN401
    """Return what a program answered, one JSON value on its last line."""
    return json.loads(one.output.splitlines()[-1])
