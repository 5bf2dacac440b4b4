"""Runs one measured command at a time and says what it took, as a whole process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Linux counts memory in kilobytes and reads in blocks of 512; macOS memory in bytes.
PEAK_UNIT = 1 if sys.platform == "darwin" else 1024
READ_UNIT = 512
# Variables that choose kernels or threads for one library and not for another.
PINNING = (
    *("OPENBLAS_", "GOTO_", "MKL_", "VECLIB_", "BLIS_", "OMP_", "KMP_", "GOMP_"),
    *("DNNL_", "ONEDNN_", "ATEN_CPU_"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a process took, from its start to its end.

    Args:
        seconds: On the wall.
        peak_bytes: The most memory it held, mapped files included.
        read_bytes: What came off the disk (Linux; elsewhere no number of bytes).
        output: What it wrote to stdout.
    """

    seconds: float
    peak_bytes: int
    read_bytes: int
    output: str


def unpin(kernel: str | None = None) -> None:
    """Let the libraries under both programs choose for themselves, as they come.

    Args:
        kernel: The processor whose kernels OpenBLAS shall take; None is its choice.
    """
    for name in [name for name in os.environ if name.startswith(PINNING)]:
        say(f"left out of the environment: {name}={os.environ.pop(name)}")
    if kernel is not None:
        os.environ["OPENBLAS_CORETYPE"] = kernel


def run(command: Sequence[str]) -> Run:
    """Run a command to its end.

    The process that calls this has to stay small: a child's peak counts what its
    parent held when it was started.

    Raises:
        SystemExit: The command failed; says with what.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        started = time.perf_counter()
        child = subprocess.Popen(command, stdout=out, stderr=err)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode:
            raise SystemExit(f"{' '.join(command)}\nfailed: {err.read().strip()}")
        return Run(
            seconds=seconds,
            peak_bytes=usage.ru_maxrss * PEAK_UNIT,
            read_bytes=usage.ru_inblock * READ_UNIT,
            output=out.read(),
        )


def ask(command: Sequence[str]) -> Any:  # noqa: ANN401
    """Run a command that answers with one JSON value on its last line."""
    return json.loads(run(command).output.splitlines()[-1])


def say(sentence: str) -> None:
    """Tell the person who waits what is going on; stdout is for the tables."""
    print(sentence, file=sys.stderr, flush=True)
