"""``make bench``: ster beside a transformers script, and beside the bare products.

Everything is a whole process, and every number a median of several. This process loads
no array library of its own: a child's peak memory would count it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import (
    answers,
    commands,
    experts,
    quantized,
    scoring,
    startup,
    widths,
    writing,
)
from benchmarks.cases import Case, make_cases
from benchmarks.commands import PYTHON, Setup
from benchmarks.process import Run, ask, run, say, unpin
from benchmarks.tables import both, fine_ratio, megabytes, ratio, seconds, table

BATCH_SIZES = {"cpu": (8, 16, 32), "mlx-cpu": (8, 16, 32)}
GPU_BATCH_SIZES = (32, 64, 128)
# What rows may differ by, measured by their layer's largest value.
TOLERANCES = {"f32": 1e-3, "f16": 5e-2, "bf16": 2e-1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was measured of one case."""

    case: Case
    ster: list[Run]
    peer: list[Run]
    batch_size: int
    difference: float
    call: dict[str, Any]
    written: tuple[int, int]


def main() -> None:
    """Measure, then print the tables."""
    options = read_options()
    unpin(options.kernel)
    options.work.mkdir(parents=True, exist_ok=True)
    setup = Setup(
        model=options.model,
        bf16_model=options.bf16_model,
        device=options.device,
        precision=options.precision,
        runs=options.runs,
        work=options.work,
    )
    cases = make_cases(options.data, setup.work)
    results = measure(setup, choose_cases(setup, cases, options.cases))
    print(run([*PYTHON, "benchmarks.machine"]).output)
    print(
        f"device {setup.device}, precision {setup.precision}, "
        f"medians of {setup.runs} runs{', short: no figures' * options.short}\n",
        flush=True,
    )
    if results:
        print(peer_table(results), end="\n\n")
        print(products_table(setup, results), end="\n\n")
    failed = False
    for draw in chosen_tables(setup, options, cases[0]):
        try:
            print(draw(), end="\n\n", flush=True)
        except SystemExit as error:  # the other tables are worth having all the same
            failed = True
            print(f"No table: {error}", end="\n\n", flush=True)
    if failed:
        raise SystemExit(1)


def chosen_tables(
    setup: Setup, options: argparse.Namespace, case: Case
) -> Iterator[Callable[[], str]]:
    """List the tables that were asked for, as far as the device has a use for them."""
    keys, short, data = options.cases, options.short, options.data
    is_mlx = setup.device != "cpu"
    if "p" in keys and is_mlx:
        sizes = widths.SHORT if short else widths.Sizes()
        yield partial(widths.table, setup, data, sizes)
    if "w" in keys:
        yield partial(writing.table, setup, writing.SHORT if short else writing.Sizes())
    if "g" in keys:
        many = answers.SHORT if short else answers.sizes_on(setup.device)
        yield partial(answers.table, setup, data, many)
    if "s" in keys:
        scored = scoring.SHORT if short else scoring.Sizes()
        yield partial(scoring.table, setup, data, scored)
    if "u" in keys:
        yield partial(startup.table, setup.work, setup.runs)
    if "q" in keys and setup.device in commands.COMMAND_DEVICES:
        yield partial(quantized.table, setup, case)
    if "m" in keys and not is_mlx:
        yield partial(experts.table, setup)


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--bf16-model", help="the same, stored bf16, for case f")
    parser.add_argument("--data", type=Path, help="a folder with other prompts")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cases", default="abcdxefwgsuqm", help="letters of the cases")
    parser.add_argument("--short", action="store_true", help="try letters p, w, g, s")
    parser.add_argument("--kernel", help="OpenBLAS's kernels: Haswell for AVX2")
    parser.add_argument("--work", type=Path, default=Path("build/bench"))
    return parser.parse_args()


def choose_cases(setup: Setup, cases: list[Case], keys: str) -> list[Case]:
    """Take the cases that were asked for; one needs bf16 weights, and the cpu."""
    has_bf16 = setup.bf16_model is not None and setup.device == "cpu"
    return [case for case in cases if case.key in keys and (has_bf16 or not case.bf16)]


def measure(setup: Setup, cases: list[Case]) -> list[Result]:
    """Measure case by case."""
    best: dict[str, int] = {}
    results = []
    for case in cases:
        say(f"({case.key}) {case.title}")
        result = measure_case(setup, case, best)
        best[case.key] = result.batch_size
        results.append(result)
    return results


def measure_case(setup: Setup, case: Case, best: dict[str, int]) -> Result:
    """Measure one case, ster and the peer in turn: the machine changes with time."""
    document, rows = setup.work / "ster.json", setup.work / "peer.npy"
    batch_size, peer_runs = find_batch_size(setup, case, rows, best)
    ster_runs = [run(commands.ster(setup, case, document))]
    difference = check_rows(setup, case, document, rows)
    while len(ster_runs) < setup.runs:
        ster_runs.append(run(commands.ster(setup, case, document)))
        peer_runs.append(run(commands.peer(setup, case, rows, batch_size)))
    say(f"  ster {listed(ster_runs)}; peer {listed(peer_runs)}, batch {batch_size}")
    calls = [ask(commands.library(setup, case)) for _ in range(setup.runs)]
    return Result(
        case=case,
        ster=ster_runs,
        peer=peer_runs,
        batch_size=batch_size,
        difference=difference,
        call={**calls[0], "seconds": median(call["seconds"] for call in calls)},
        written=(document.stat().st_size, rows.stat().st_size),
    )


def find_batch_size(
    setup: Setup, case: Case, rows: Path, best: dict[str, int]
) -> tuple[int, list[Run]]:
    """Run the peer at some batch sizes; return the fastest, and its run."""
    sizes: tuple[int, ...] = BATCH_SIZES.get(setup.device, GPU_BATCH_SIZES)
    if case.batch_of in best:
        sizes = (best[case.batch_of],)
    if case.key == "e":
        sizes = (1,)
    tried = {size: run(commands.peer(setup, case, rows, size)) for size in sizes}
    for size, one in tried.items():
        say(f"  peer at batch size {size}: {seconds(one.seconds)}")
    fastest = min(tried, key=lambda size: tried[size].seconds)
    return fastest, [tried[fastest]]


def check_rows(setup: Setup, case: Case, document: Path, rows: Path) -> float:
    """Refuse to time two programs that do not compute the same."""
    difference = float(ask(commands.compare(document, rows)))
    if difference > TOLERANCES[setup.precision]:
        raise SystemExit(f"({case.key}) the peer's rows differ by {difference:.1e}")
    return difference


def listed(runs: list[Run]) -> str:
    """List the times of some runs."""
    return ", ".join(seconds(one.seconds) for one in runs)


def wall(runs: list[Run]) -> float:
    """Take the median time."""
    return median(one.seconds for one in runs)


def peak(runs: list[Run]) -> int:
    """Take the largest peak."""
    return max(one.peak_bytes for one in runs)


def peer_table(results: list[Result]) -> str:
    """Draw ster beside the peer."""
    titles = (
        "whole process",
        "times as fast",
        "ster / transformers (batch)",
        "peak memory",
        "bytes written",
        "rows differ by",
    )
    rows = [
        (
            f"({one.case.key}) {one.case.title}",
            ratio(wall(one.peer), wall(one.ster)),
            both(
                seconds(wall(one.ster)), f"{seconds(wall(one.peer))} ({one.batch_size})"
            ),
            both(megabytes(peak(one.ster)), megabytes(peak(one.peer))),
            both(*map(megabytes, one.written)),
            f"{one.difference:.0e}",
        )
        for one in results
    ]
    return table(titles, rows)


def products_table(setup: Setup, results: list[Result]) -> str:
    """Draw ster's compute beside the bare products of its distinct tokens."""
    titles = [
        "compute",
        "over the bare products",
        "compute / products",
        "distinct / all tokens",
    ]
    ceilings = ("f32",) if setup.precision == "f32" else ("f32", setup.precision)
    if setup.device != "cpu":
        titles += [f"of the {name} ceiling" for name in ceilings]
    rows = [
        list(products_row(setup, one, ceilings))
        for one in results
        if one.case.key in "abcd"
    ]
    return table(titles, rows)


def products_row(
    setup: Setup, result: Result, ceilings: tuple[str, ...]
) -> Iterator[str]:
    """Replay the products of a case."""
    call, case = result.call, result.case
    say(f"({case.key}) its bare products")
    bare = {
        name: ask(
            commands.products(
                setup, call["num_tokens"], call["num_last"], case.num_layers, name
            )
        )
        for name in ceilings
    }
    ours, theirs = call["seconds"], bare[ceilings[0]]["seconds"]
    yield f"({case.key}) {case.title}"
    yield fine_ratio(ours, theirs)
    yield both(seconds(ours), seconds(theirs))
    yield both(f"{call['num_tokens']:,}", f"{call['num_prompt_tokens']:,}")
    if setup.device != "cpu":
        for name in ceilings:
            most = bare[name]["ceiling"]
            share = bare[name]["flops"] / ours / most
            yield f"{share:.0%} of {most / 1e9:,.0f} GFLOP/s"


if __name__ == "__main__":
    main()
