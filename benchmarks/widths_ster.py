"""ster at one width: reading many prompts, reading a long one, and writing tokens.

Prints ``{"tokens", "flops", "extract", "token", "token_bytes", "prompt_tps"}``. Weights
are in memory before anything is timed; a time is the median of some runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from statistics import median
from typing import Any

import ster
from benchmarks.library import TokenCounter, encode
from benchmarks.products import block_shapes, count
from benchmarks.rates import timer, token_seconds
from benchmarks.weights import token_values
from ster.architecture.parts import Experts
from ster.architecture.spec import ModelSpec
from ster.documents.prompt_sets.files import read_prompt_set


def main() -> None:
    """Load and measure."""
    options = read_options()
    counter = TokenCounter()
    runtime = ster.load(
        options.model,
        device=options.device,
        precision=options.precision,
        reporter=counter,
    )
    spec = runtime.config
    if not isinstance(spec, ModelSpec):
        raise SystemExit("its blocks are not ster's own, so their shapes are not known")
    answer = read_many(runtime, spec, counter, options)
    (long,) = read_prompt_set(options.long)
    options.chat_template = "auto"
    (long_ids,) = encode(options, [long])
    reading = timer(lambda: runtime.activations([long], [len(spec.layers) - 1]))
    answer["prompt_tps"] = len(long_ids) / median(
        reading() for _ in range(options.runs)
    )
    answer["token"] = write_some(runtime, long, options)
    answer["token_bytes"] = token_values(spec).num_bytes(options.width)
    print(json.dumps(answer))


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--model", "--input", "--long", "--device", "--precision", "--width"):
        parser.add_argument(name, required=True)
    for name in ("--runs", "--tokens", "--few-tokens"):
        parser.add_argument(name, type=int, required=True)
    return parser.parse_args()


def read_many(
    runtime: ster.Runtime,
    spec: ModelSpec,
    counter: TokenCounter,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Read all layers of all prompts, and count what that multiplies."""
    prompts = [*read_prompt_set(options.input)]
    extract = timer(lambda: runtime.activations(prompts))
    tokens = counter.num_tokens
    return {
        "tokens": tokens,
        "flops": read_flops(spec, tokens, len(set(prompts))),
        "extract": median(extract() for _ in range(options.runs)),
    }


def read_flops(spec: ModelSpec, tokens: int, last: int) -> int:
    """Count the operations of the blocks' products over the distinct tokens.

    Attention's scores and sums are not in it. Of the last block only the last tokens
    are needed, but for keys and values.

    Args:
        spec: The decoder.
        tokens: Distinct tokens.
        last: Of them those whose rows are read.
    """
    total = 0
    for index, layer in enumerate(spec.layers):
        rows = last if index == len(spec.layers) - 1 else tokens
        served: Sequence[int] = ()
        if isinstance(layer.feed_forward, Experts):
            # Whichever they choose: each token has as many, and all are alike.
            made = layer.feed_forward
            served = [rows * made.num_chosen, *[0] * (len(made.experts) - 1)]
        total += count(list(block_shapes(layer, tokens, rows, served)))
    return total


def write_some(
    runtime: ster.Runtime, prompt: str, options: argparse.Namespace
) -> float:
    """Time a token: many tokens less few."""
    few, many = (
        timer(lambda tokens=tokens: runtime.generate(prompt, max_new_tokens=tokens))  # type: ignore[misc]
        for tokens in (options.few_tokens, options.tokens)
    )
    turns = [(few(), many()) for _ in range(options.runs)]
    return token_seconds(turns, options.tokens - options.few_tokens)


if __name__ == "__main__":
    main()
