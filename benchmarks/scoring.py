"""Scoring pairs at several strengths, beside one strength and beside transformers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import steered, tables
from benchmarks.cases import read_sides
from benchmarks.commands import PYTHON, Setup
from benchmarks.process import ask, say
from benchmarks.rates import difference

# Of several strengths over one, where each is scored beside the unsteered texts.
WANTED = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is scored.

    Args:
        pairs: How many.
        strengths: At each of which all are scored, and once without steering.
        batch_sizes: Of the transformers script; the best counts.
    """

    pairs: int = 100
    strengths: tuple[float, ...] = (-8.0, -4.0, 4.0, 8.0)
    batch_sizes: tuple[int, ...] = (8, 16, 32)


SHORT = Sizes(pairs=4, batch_sizes=(8,))


def table(setup: Setup, data: Path | None, sizes: Sizes) -> str:
    """Measure and draw."""
    say(f"scoring {sizes.pairs} pairs at {len(sizes.strengths)} strengths")
    steering = steered.prepare(setup)
    pairs = write_pairs(setup.work / "scored-pairs.json", data, sizes.pairs)
    scored = setup.work / "scored.json"
    strengths = f"--strengths={','.join(map(str, sizes.strengths))}"
    ster = ask(
        [
            *(*PYTHON, "benchmarks.scoring_ster", strengths),
            *steered.ster_flags(setup, steering),
            *("--input", str(pairs), "--output", str(scored)),
            *("--runs", str(setup.runs)),
        ]
    )
    peer = [
        *(*PYTHON, "benchmarks.scoring_peer", strengths),
        *steered.peer_flags(setup, steering),
        *("--input", str(scored), "--output", "-", "--batch-size"),
    ]
    found = {size: ask([*peer, str(size)]) for size in sizes.batch_sizes}
    best = min(found, key=lambda size: found[size]["seconds"])
    more = [ask([*peer, str(best)])["seconds"] for _ in range(setup.runs - 1)]
    theirs = median([found[best]["seconds"], *more])
    titles = (
        f"{sizes.pairs} pairs, {len(sizes.strengths)} strengths, layer "
        f"{steering.layer}",
        f"over one strength (at most {WANTED})",
        "ster, several / one",
        "times as fast",
        "ster / transformers (batch)",
        "mean shifts differ by",
    )
    row = (
        "whole call, weights in memory",
        f"{ster['ratio']:.2f}",
        tables.both(tables.seconds(ster["several"]), tables.seconds(ster["one"])),
        tables.fine_ratio(theirs, ster["several"]),
        tables.both(
            tables.seconds(ster["several"]), f"{tables.seconds(theirs)} ({best})"
        ),
        f"{difference(ster['shifts'], found[best]['shifts']):.0e}",
    )
    return tables.table(titles, [row])


def write_pairs(path: Path, data: Path | None, number: int) -> Path:
    """Write a pair set of some of the pairs, evenly over all."""
    sides = read_sides(data)
    pairs = list(zip(sides[0::2], sides[1::2], strict=True))
    document = {
        "trait_name": "measured",
        "pairs": [
            {"positive": positive, "negative": negative}
            for positive, negative in steered.spread(pairs, number)
        ],
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
