"""``ster``, with a count of the bytes that it takes from its mapped weights.

``counted run WORDS...`` is the command itself, then prints ``{"block_bytes"}``;
``counted tokens MODEL PROMPTS`` prints ``{"num_tokens", "num_last"}``.
"""

from __future__ import annotations

import json
import sys
from threading import Lock
from typing import Any

from ster.checkpoint.resolve import open_files
from ster.checkpoint.tokenizer import load_encoder
from ster.checkpoint.weights import StoredTensor
from ster.cli import run
from ster.documents.prompts import read_prompt_set
from ster.reporting import QuietReporter
from ster.stream.packing import DistinctTokens


def main() -> None:
    """Do what the first word says."""
    word, *words = sys.argv[1:]
    print(json.dumps(count_tokens(*words) if word == "tokens" else count_bytes(words)))


def count_bytes(words: list[str]) -> dict[str, int]:
    """Run the command; count the matrices' bytes each time some are converted."""
    taken, lock, convert = 0, Lock(), StoredTensor.as_float32

    def counting(tensor: StoredTensor) -> Any:  # noqa: ANN401
        nonlocal taken
        with lock:
            taken += tensor.data.nbytes
        return convert(tensor)

    StoredTensor.as_float32 = counting  # type: ignore[assignment, method-assign]
    if code := run(words):
        raise SystemExit(code)
    return {"block_bytes": taken}


def count_tokens(model: str, prompts: str) -> dict[str, int]:
    """Count the distinct tokens of a run, and those whose rows are read."""
    encoder = load_encoder(open_files(model, None), "auto", QuietReporter())
    ids = encoder.encode(read_prompt_set(prompts))
    distinct = DistinctTokens()
    return {
        "num_tokens": sum(distinct.add(prompt, 0) for prompt in ids),
        "num_last": len(set(map(tuple, ids))),
    }


if __name__ == "__main__":
    main()
