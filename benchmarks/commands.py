"""The command lines that are measured."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cases import Case

PYTHON = (sys.executable, "-m")
# Devices of the command; others are the library's own.
COMMAND_DEVICES = ("cpu", "metal", "cuda")
DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a whole table is measured with.

    Args:
        model: The checkpoint, a directory or an id of the Hub.
        bf16_model: The same, stored bf16, if there is one.
        device: Where ster computes; the peer takes torch's word for it, or the cpu.
        precision: The width of the run.
        runs: How many whole processes a median is of.
        work: A folder for prompts and results.
    """

    model: str
    bf16_model: str | None
    device: str
    precision: str
    runs: int
    work: Path

    def model_of(self, case: Case) -> str:
        """Choose the checkpoint of a case; bf16 ones run only where there is one."""
        model = self.bf16_model if case.bf16 else self.model
        if model is None:
            raise ValueError(f"case {case.key} needs a model stored bf16")
        return model


def ster(setup: Setup, case: Case, output: Path) -> list[str]:
    """Write the document, by the command where it knows the device."""
    if setup.device not in COMMAND_DEVICES:
        return [*library(setup, case), "--output", str(output)]
    words = [*PYTHON, "ster", "extract", *_flags(setup, case), "--output", str(output)]
    return words if case.memory is None else [*words, "--memory", case.memory]


def counted(setup: Setup, case: Case, output: Path) -> list[str]:
    """Write the document, and count what is read and unpacked."""
    words = [*PYTHON, "benchmarks.counted", "run", "extract"]
    return [*words, *_flags(setup, case), "--output", str(output)]


def library(setup: Setup, case: Case) -> list[str]:
    """Time one call of the library."""
    return [*PYTHON, "benchmarks.library", *_flags(setup, case)]


def _flags(setup: Setup, case: Case) -> list[str]:
    return [
        *("--model", setup.model_of(case)),
        *("--input", str(case.prompts)),
        *("--device", setup.device),
        *("--precision", setup.precision),
        *("--chat-template", case.chat_template),
        *("--layers", case.layers),
    ]


def peer(setup: Setup, case: Case, output: Path, batch_size: int) -> list[str]:
    """Write the peer's rows."""
    words = [
        *(*PYTHON, "benchmarks.peer"),
        *("--model", setup.model_of(case)),
        *("--input", str(case.prompts)),
        *("--device", setup.device),
        *("--dtype", DTYPES[setup.precision]),
        *("--chat-template", case.chat_template),
        *("--batch-size", str(batch_size)),
        *("--output", str(output)),
    ]
    if case.num_layers is not None:
        words += ["--layers", str(case.num_layers)]
    return [*words, "--cut"] if case.cut else words


def compare(document: Path, rows: Path) -> list[str]:
    """Measure how far the peer's rows are from the document's."""
    return [*PYTHON, "benchmarks.compare", str(document), str(rows)]


def products(
    setup: Setup, tokens: int, last: int, blocks: int | None, precision: str
) -> list[str]:
    """Time the bare matrix products of a run."""
    words = [
        *(*PYTHON, "benchmarks.products"),
        *("--model", setup.model),
        *("--device", setup.device),
        *("--precision", precision),
        *("--tokens", str(tokens)),
        *("--last", str(last)),
    ]
    return words if blocks is None else [*words, "--blocks", str(blocks)]
