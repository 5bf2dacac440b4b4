"""ster on a model, and on the same at 8 and at 4 bits."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from statistics import median

from benchmarks import commands, tables
from benchmarks.cases import Case
from benchmarks.commands import PYTHON, Setup
from benchmarks.process import Run, ask, run, say

BITS = (8, 4)
# Of the processor time of a run; what is above it would be for unpacking to lose.
MOST_UNPACKING = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One of the checkpoints, and what was measured of it so far."""

    name: str
    setup: Setup
    size: int
    runs: list[Run]


def table(setup: Setup, case: Case) -> str:
    """Make the checkpoints, run all of them in turn, and draw."""
    say(f"quantized: {case.title}")
    models = make_models(setup)
    for turn in range(setup.runs):
        for model in models:
            words = commands.counted(model.setup, case, setup.work / "quantized.json")
            model.runs.append(run(words))
        times = ", ".join(tables.seconds(one.runs[turn].seconds) for one in models)
        say(f"  {', '.join(one.name for one in models)}: {times}")
    titles = (
        f"{case.title}: ster alone",
        "time / plain",
        "whole process",
        "peak memory",
        "on disk",
        f"unpacking / processor time (at most {MOST_UNPACKING:.0%})",
    )
    return tables.table(titles, [row(model, models[0]) for model in models])


def make_models(setup: Setup) -> list[Model]:
    """Quantize; afresh, since the model may be another than last time."""
    plain, packed = 0, []
    for bits in BITS:
        directory = setup.work / f"{bits}-bits"
        shutil.rmtree(directory, ignore_errors=True)
        sizes = ask(
            [*PYTHON, "benchmarks.quantizer", setup.model, str(directory), str(bits)]
        )
        plain = sizes["plain_bytes"]
        packed.append(
            Model(
                name=f"{bits} bits",
                setup=replace(setup, model=str(directory)),
                size=sizes["packed_bytes"],
                runs=[],
            )
        )
    return [Model(name="plain", setup=setup, size=plain, runs=[]), *packed]


def row(model: Model, plain: Model) -> tuple[str, ...]:
    """Draw one line; a ratio is that of the two runs of one turn."""
    turns = zip(model.runs, plain.runs, strict=True)
    return (
        model.name,
        tables.fine_ratio(median(one.seconds / two.seconds for one, two in turns), 1),
        tables.seconds(median(one.seconds for one in model.runs)),
        tables.megabytes(max(one.peak_bytes for one in model.runs)),
        tables.megabytes(model.size),
        f"{median(map(unpacking_share, model.runs)):.0%}",
    )


def unpacking_share(one: Run) -> float:
    """Return the part of a run's processor time in which values were unpacked."""
    counted = json.loads(one.output.splitlines()[-1])
    share: float = counted["unpacking"] / counted["processor"]
    return share
