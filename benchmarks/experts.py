"""ster's compute of a made-up model with experts, over the bare products."""

from __future__ import annotations

import json
import shutil
from statistics import median

from benchmarks import tables
from benchmarks.commands import PYTHON, Setup
from benchmarks.process import ask, run, say

TITLE = "60 prompts of 60 tokens, 3 layers, 8 of 64 experts a token, bf16 at f32"


def table(setup: Setup) -> str:
    """Make the checkpoint, measure, remove it, and draw; on the cpu at f32."""
    say("experts")
    model = setup.work / "experts"
    shutil.rmtree(model, ignore_errors=True)
    try:
        run([*PYTHON, "benchmarks.mixture", "make", str(model)])
        return tables.table(
            ("experts", "over the bare products", "compute / products", "most / mean"),
            [measure(str(model), setup.runs)],
        )
    finally:
        shutil.rmtree(model, ignore_errors=True)


def measure(model: str, runs: int) -> tuple[str, ...]:
    """Time ster's call, then the products of the experts that it chose."""
    flags = ["--model", model, "--device", "cpu", "--precision", "f32"]
    words = [*flags, "--input", f"{model}/prompts.json"]
    calls = [ask([*PYTHON, "benchmarks.mixture", "run", *words]) for _ in range(runs)]
    call = calls[0]
    bare = ask(
        [
            *(*PYTHON, "benchmarks.products", *flags),
            *("--tokens", str(call["num_tokens"]), "--last", str(call["num_last"])),
            *("--experts", json.dumps(call["rows"])),
        ]
    )
    ours = median(one["seconds"] for one in calls)
    first = call["rows"][0]
    return (
        TITLE,
        tables.fine_ratio(ours, bare["seconds"]),
        tables.both(tables.seconds(ours), tables.seconds(bare["seconds"])),
        tables.fine_ratio(max(first), sum(first) / len(first)),
    )
