"""ster's part of many answers: all in one batch, or one prompt at a time.

Prints ``{"seconds", "rows"}`` of writing, model loaded and warm. Of a batch it writes
the tokens of each prompt at each strength as JSON, in this order.
"""

from __future__ import annotations

import argparse
import json
import time

import ster
from benchmarks.steered import ster_parser
from ster.documents.prompt_sets.files import read_prompt_set


def main() -> None:
    """Load, warm up, write, and say how long the writing took."""
    options = read_options()
    runtime = ster.load(
        options.model, device=options.device, precision=options.precision
    )
    vector = ster.SteeringVector.load(options.vector)
    prompts = [*read_prompt_set(options.input)]
    # Weights are in memory from here on, as they are in the peer.
    runtime.generate(prompts[0], steer=[vector], max_new_tokens=2)
    write = write_one_by_one if options.one_by_one else write_all
    started = time.perf_counter()
    written = write(runtime, prompts, vector, options)
    seconds = time.perf_counter() - started
    if not options.one_by_one:
        options.output.write_text(json.dumps(written), encoding="utf-8")
    print(json.dumps({"seconds": seconds, "rows": len(written)}))


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = ster_parser(__doc__)
    parser.add_argument("--max-new-tokens", type=int, required=True)
    parser.add_argument(
        "--one-by-one", type=int, help="write so many of the rows, each by itself"
    )
    options = parser.parse_args()
    options.strengths = [float(word) for word in options.strengths.split(",")]
    return options


def write_all(
    runtime: ster.Runtime,
    prompts: list[str],
    vector: ster.SteeringVector,
    options: argparse.Namespace,
) -> list[list[int]]:
    """Answer every prompt at every strength, all in one batch."""
    answers = {
        (answer.prompt, float(answer.strength)): list(answer.token_ids)
        for answer in runtime.answers(
            prompts,
            steer=[vector],
            strengths=options.strengths,
            max_new_tokens=options.max_new_tokens,
        )
    }
    rows = [(prompt, each) for prompt in prompts for each in options.strengths]
    written = [answers[row] for row in rows]
    for row, tokens in zip(rows, written, strict=True):
        if len(tokens) != options.max_new_tokens:
            raise SystemExit(f"{row} ended after {len(tokens)} tokens")
    return written


def write_one_by_one(
    runtime: ster.Runtime,
    prompts: list[str],
    vector: ster.SteeringVector,
    options: argparse.Namespace,
) -> list[str]:
    """Answer some of the rows, spread over all, each by a call of its own."""
    rows = [(prompt, each) for prompt in prompts for each in options.strengths]
    return [
        runtime.generate(
            prompt, steer=[vector * each], max_new_tokens=options.max_new_tokens
        )
        for prompt, each in rows[:: max(1, len(rows) // options.one_by_one)]
    ]


if __name__ == "__main__":
    main()
