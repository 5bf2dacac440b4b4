"""The peer of many answers: transformers' ``generate`` over padded batches.

Rows are sorted by length and padded on the left, with an attention mask and a cache of
keys and values; a hook on one layer steers each row at its own strength. Prints
``{"seconds"}`` of writing all of them, model loaded and warm, and writes the tokens of
each prompt at each strength as JSON, in this order.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence

import torch

from benchmarks.peer import batches, encode
from benchmarks.steering_peer import Steered, load, parse


def main() -> None:
    """Load, warm up, write, and say how long the writing took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-new-tokens", type=int, required=True)
    options = parse(parser)
    with open(options.input, encoding="utf-8") as file:
        prompts: list[str] = json.load(file)["prompts"]
    token_ids = encode(options.model, prompts, template="auto")
    strengths = options.strengths * len(prompts)
    rows = [ids for ids in token_ids for _ in options.strengths]
    steered = load(options)
    steered.model.generation_config.eos_token_id = None
    with torch.inference_mode():
        write(steered, rows[:1], strengths[:1], 2)
        started = time.perf_counter()
        written: list[list[int]] = [[] for _ in rows]
        for batch in batches(rows, options.batch_size):
            answers = write(
                steered,
                [rows[index] for index in batch],
                [strengths[index] for index in batch],
                options.max_new_tokens,
            )
            for index, answer in zip(batch, answers, strict=True):
                written[index] = answer
        seconds = time.perf_counter() - started
    with open(options.output, "w", encoding="utf-8") as file:
        json.dump(written, file)
    print(json.dumps({"seconds": seconds}))


def write(
    steered: Steered,
    rows: Sequence[Sequence[int]],
    strengths: Sequence[float],
    new_tokens: int,
) -> list[list[int]]:
    """Write the likeliest tokens after each row of one batch."""
    longest = max(map(len, rows))
    padded = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros_like(padded)
    for at, row in enumerate(rows):
        padded[at, longest - len(row) :] = torch.tensor(row)
        mask[at, longest - len(row) :] = 1
    with steered.at(torch.tensor(strengths)):
        written = steered.model.generate(
            input_ids=padded.to(steered.model.device),
            attention_mask=mask.to(steered.model.device),
            max_new_tokens=new_tokens,
            do_sample=False,
            pad_token_id=0,
        )
    answers: list[list[int]] = written[:, longest:].tolist()
    return answers


if __name__ == "__main__":
    main()
