"""``ster``, with a count of what it takes from its weight files and of unpacking.

``counted run WORDS...`` is the command itself, then prints ``{"read_bytes",
"unpacking", "processor"}``: bytes of tensors that were copied out of the files, and
seconds of all threads, those in which quantized values were unpacked and those of the
whole process. ``counted tokens MODEL PROMPTS`` prints ``{"num_tokens", "num_last"}``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from threading import Lock
from typing import Any

from ster.checkpoint import stored
from ster.checkpoint.packing_formats import dequantize
from ster.checkpoint.resolve import open_files
from ster.checkpoint.tokenizer import load_encoder
from ster.checkpoint.weight_file import WeightFile
from ster.cli import run
from ster.documents.prompt_sets.files import read_prompt_set
from ster.reporting import QuietReporter
from ster.stream.packing import DistinctTokens


class Count:
    """A sum that all threads add to."""

    def __init__(self) -> None:
        self.sum: float = 0
        self._lock = Lock()

    def add(self, value: float) -> None:
        """Add to it."""
        with self._lock:
            self.sum += value


def main() -> None:
    """Do what the first word says."""
    word, *words = sys.argv[1:]
    print(json.dumps(count_tokens(*words) if word == "tokens" else count_run(words)))


def count_run(words: list[str]) -> dict[str, float]:
    """Run the command, and count."""
    taken, unpacking = count_reads(), Count()
    stored.dequantize = timed(dequantize, unpacking)  # type: ignore[attr-defined]
    if code := run(words):
        raise SystemExit(code)
    processor = time.process_time()
    return {
        "read_bytes": taken.sum,
        "unpacking": unpacking.sum,
        "processor": processor,
    }


def count_reads() -> Count:
    """Count the bytes of tensors that are copied out of weight files from now on."""
    taken, copy = Count(), WeightFile.copy_into

    def counting(file: WeightFile, start: int, out: Any) -> None:  # noqa: ANN401
        taken.add(out.nbytes)
        copy(file, start, out)

    WeightFile.copy_into = counting  # type: ignore[assignment, method-assign]
    return taken


def timed(work: Callable[..., Any], spent: Count) -> Callable[..., Any]:
    """Return what does the same and adds its thread's processor time."""

    def timing(*words: Any, **flags: Any) -> Any:  # noqa: ANN401
        started = time.thread_time()
        made = work(*words, **flags)
        spent.add(time.thread_time() - started)
        return made

    return timing


def count_tokens(model: str, prompts: str) -> dict[str, int]:
    """Count the distinct tokens of a run, and those whose rows are read."""
    encoder = load_encoder(open_files(model, None), "auto", QuietReporter())
    ids = encoder.encode([*read_prompt_set(prompts)])
    distinct = DistinctTokens()
    return {
        "num_tokens": sum(distinct.add(prompt, 0) for prompt in ids),
        "num_last": len(set(map(tuple, ids))),
    }


if __name__ == "__main__":
    main()
