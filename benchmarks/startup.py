"""How long ster takes to start, beside a transformers script on the same checkpoint."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from benchmarks import tables
from benchmarks.cases import write_prompts
from benchmarks.commands import PYTHON
from benchmarks.process import run, say

STER = [*PYTHON, "ster"]


def table(work: Path, runs: int) -> str:
    """Measure and draw."""
    say("start-up")
    toy, prompts = str(work / "toy"), write_prompts(work / "toy.json", ["the sea ."])
    run([*STER, "toy-model", toy])
    inputs = ["--model", toy, "--input", str(prompts)]
    programs = {
        "ster --help": [*STER, "--help"],
        "ster --version": [*STER, "--version"],
        "ster extract, toy checkpoint": [
            *(*STER, "extract"),
            *(*inputs, "--output", str(work / "toy-rows.json")),
        ],
        "transformers script, toy checkpoint": [
            *(*PYTHON, "benchmarks.peer", "--chat-template", "off"),
            *(*inputs, "--output", str(work / "toy-rows.npy")),
        ],
    }
    rows = [(name, time(program, runs)) for name, program in programs.items()]
    return tables.table(("start-up", "whole process"), rows)


def time(program: list[str], runs: int) -> str:
    """Take the median of some runs, after one that warms the page cache."""
    run(program)
    return tables.seconds(median(run(program).seconds for _ in range(runs)))
