"""What mlx-lm writes and how fast, by its own functions, without any steering.

``batch`` answers all prompts by ``batch_generate`` and prints ``{"seconds"}``; what it
wrote goes into ``--output``. ``one`` reads and answers one prompt by
``stream_generate`` and prints ``{"prompt_tokens", "prompt_tps", "generation_tps"}``, as
mlx-lm itself counts them. Either prints null where mlx-lm is not installed.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.util import find_spec
from statistics import median
from typing import Any

# Rows that are written at once; its own choice is 32.
COMPLETION_SIZES = (32, 100)


def main() -> None:
    """Do what the first word says."""
    options = read_options()
    if find_spec("mlx_lm") is None:
        print("null")
        return
    model, tokenizer = load(options)
    do = write_batch if options.what == "batch" else write_one
    print(json.dumps(do(model, tokenizer, options)))


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["batch", "one"])
    for name in ("--model", "--input", "--device"):
        parser.add_argument(name, required=True)
    parser.add_argument("--width", help="of weights; stored if not given")
    parser.add_argument("--output")
    parser.add_argument("--copies", type=int, default=1, help="of each prompt")
    parser.add_argument("--max-new-tokens", type=int, required=True)
    parser.add_argument("--runs", type=int, default=1)
    return parser.parse_args()


def load(options: argparse.Namespace) -> tuple[Any, Any]:
    """Load the model at a width, on the device, with no token that ends a text."""
    import mlx.core as mx

    mx.set_default_device(mx.Device(mx.cpu if options.device == "mlx-cpu" else mx.gpu))
    import mlx_lm  # after the choice: it makes its stream when it is imported

    model, tokenizer = mlx_lm.load(options.model)
    if options.width:
        widths = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
        model.set_dtype(widths[options.width])
        mx.eval(model.parameters())
    tokenizer._eos_token_ids = set()
    return model, tokenizer


def encode(tokenizer: Any, path: str) -> list[list[int]]:  # noqa: ANN401
    """Encode each prompt as one user message, or as it is without a template."""
    with open(path, encoding="utf-8") as file:
        prompts: list[str] = json.load(file)["prompts"]
    if not tokenizer.has_chat_template:
        return [tokenizer.encode(prompt) for prompt in prompts]
    turns = [[{"role": "user", "content": prompt}] for prompt in prompts]
    return [
        list(tokenizer.apply_chat_template(turn, add_generation_prompt=True))
        for turn in turns
    ]


def write_batch(
    model: Any,  # noqa: ANN401
    tokenizer: Any,  # noqa: ANN401
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Answer all prompts at once, each so many times; the best batch size counts."""
    from mlx_lm import batch_generate

    prompts = [
        ids for ids in encode(tokenizer, options.input) for _ in range(options.copies)
    ]
    batch_generate(model, tokenizer, prompts[:1], max_tokens=2)
    best: dict[str, Any] = {"seconds": float("inf")}
    for size in COMPLETION_SIZES:
        started = time.perf_counter()
        answer = batch_generate(
            model,
            tokenizer,
            prompts,
            max_tokens=options.max_new_tokens,
            return_token_ids=True,
            completion_batch_size=size,
        )
        seconds = time.perf_counter() - started
        if seconds < best["seconds"]:
            best = {"seconds": seconds, "size": size}
            written = answer.token_ids
    with open(options.output, "w", encoding="utf-8") as file:
        json.dump(written, file)
    return best


def write_one(
    model: Any,  # noqa: ANN401
    tokenizer: Any,  # noqa: ANN401
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Read and answer the first prompt some times, after once to warm up."""
    from mlx_lm import stream_generate

    (ids, *_) = encode(tokenizer, options.input)
    found = []
    for _ in range(options.runs + 1):
        for said in stream_generate(
            model, tokenizer, ids, max_tokens=options.max_new_tokens
        ):
            last = said
        found.append(last)
    return {
        "prompt_tokens": len(ids),
        "prompt_tps": median(each.prompt_tps for each in found[1:]),
        "generation_tps": median(each.generation_tps for each in found[1:]),
    }


if __name__ == "__main__":
    main()
