"""ster as a library: one call of it, timed inside its process.

Prints ``{"seconds", "num_tokens", "num_prompt_tokens", "num_last"}``: the call takes
prompts and gives rows, tokenizing and weights included; imports, config and tokenizer
are loaded before it. With ``--output`` it writes the document, as the command does.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from ster import load
from ster.checkpoint.resolve import open_files
from ster.checkpoint.tokenizer import load_encoder
from ster.documents.prompt_sets.files import read_prompt_set
from ster.reporting import Progress, QuietReporter


class TokenCounter(QuietReporter):
    """Remembers how many distinct tokens a run had."""

    num_tokens = 0

    def progress(self, progress: Progress) -> None:
        """Take the count."""
        self.num_tokens = progress.num_tokens


def main() -> None:
    """Print what was measured."""
    print(json.dumps(measure(read_options())))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Time the call, or write the document."""
    counter = TokenCounter()
    runtime = load(
        options.model,
        device=options.device,
        precision=options.precision,
        chat_template=options.chat_template,
        reporter=counter,
    )
    prompts = [*read_prompt_set(options.input)]
    started = time.perf_counter()
    if options.output:
        runtime.write_activations(prompts, options.output, options.layers)
    else:
        runtime.activations(prompts, options.layers)
    seconds = time.perf_counter() - started
    ids = encode(options, prompts)
    return {
        "seconds": seconds,
        "num_tokens": counter.num_tokens,
        "num_prompt_tokens": sum(map(len, ids)),
        "num_last": len(set(map(tuple, ids))),
    }


def read_options() -> argparse.Namespace:
    """Read the command line: the flags of ``ster extract``."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--model", "--input", "--device", "--precision"):
        parser.add_argument(name, required=True)
    parser.add_argument("--chat-template", default="auto")
    parser.add_argument("--layers", default="all")
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def encode(options: argparse.Namespace, prompts: list[str]) -> list[list[int]]:
    """Encode the prompts once more, to count their tokens."""
    files = open_files(options.model, None)
    encoder = load_encoder(files, options.chat_template, QuietReporter())
    return [ids.tolist() for ids in encoder.encode(prompts)]


if __name__ == "__main__":
    main()
