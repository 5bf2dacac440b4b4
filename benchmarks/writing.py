"""How fast text is written, one token after the other, steered and not.

``python -m benchmarks.writing`` runs one program, ster or transformers, in its
own process and prints JSON; ``table`` runs both and draws. The model is one whose texts
never end, so both write all tokens.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from benchmarks import steered, tables
from benchmarks.commands import DTYPES, PYTHON, Setup
from benchmarks.process import ask, say

PROMPT = "Tell me a long story about a fox who lives by the sea."
TOKENS = 64
# One token's time is that of an answer over that of a short one: prompt and start-up
# are in both.
FEW_TOKENS = 8
# What a token may take, over reading the weights once.
WANTED = 1.3
# Too small to change a token, and added to every row like any other.
FAINT = 1e-6


def main() -> None:
    """Time one program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--who", choices=["ster", "transformers"], required=True)
    for name in ("--model", "--device", "--precision"):
        parser.add_argument(name, required=True)
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    time_it = time_ster if options.who == "ster" else time_transformers
    print(json.dumps(time_it(options)))


def time_ster(options: argparse.Namespace) -> dict[str, Any]:
    """Time ster without and with a vector at every layer, in turn."""
    import numpy as np

    import ster

    runtime = ster.load(
        options.model, device=options.device, precision=options.precision
    )
    config = runtime.config
    vector = ster.SteeringVector(
        layers=tuple(range(config.num_hidden_layers)),
        array=np.full(
            (config.num_hidden_layers, config.hidden_size), FAINT, np.float32
        ),
        model=runtime.model,
        trait_name="faint",
        method="caa",
    )
    plain = timer(lambda: runtime.generate(PROMPT, max_new_tokens=TOKENS))
    steered = timer(
        lambda: runtime.generate(PROMPT, max_new_tokens=TOKENS, steer=[vector])
    )
    few = timer(lambda: runtime.generate(PROMPT, max_new_tokens=FEW_TOKENS))
    runs = [(plain(), steered(), few()) for _ in range(options.runs)]
    return {
        "seconds": median(run[0] for run in runs),
        "steering": median(run[1] / run[0] for run in runs),
        "token": token_seconds([(run[2], run[0]) for run in runs]),
        "text": runtime.generate(PROMPT, max_new_tokens=TOKENS),
    }


def time_transformers(options: argparse.Namespace) -> dict[str, Any]:
    """Time ``generate`` of transformers, with its cache, the likeliest token."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    device = {"metal": "mps", "cuda": "cuda"}.get(options.device, "cpu")
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(
        options.model, dtype=getattr(torch, DTYPES[options.precision])
    ).to(device)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": PROMPT}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    ).to(device)

    def write() -> torch.Tensor:
        with torch.inference_mode():
            return model.generate(**ids, max_new_tokens=TOKENS, do_sample=False)

    once = timer(write)
    length = ids["input_ids"].shape[1]
    return {
        "seconds": median(once() for _ in range(options.runs)),
        "text": tokenizer.decode(write()[0, length:], skip_special_tokens=True),
    }


def timer(work: Callable[[], object]) -> Callable[[], float]:
    """Return what times the work, after one run that warms up."""
    work()

    def once() -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    return once


def token_seconds(
    runs: Sequence[tuple[float, float]], few: int = FEW_TOKENS, many: int = TOKENS
) -> float:
    """Tell how long a token takes, of the times of a short answer and a longer one."""
    return median((long - short) / (many - few) for short, long in runs)


def table(setup: Setup) -> str:
    """Run both and draw them side by side."""
    say(f"writing {TOKENS} tokens")
    model = str(steered.endless(setup))
    ster, peer = (
        ask(
            [
                *(*PYTHON, "benchmarks.writing", "--who", who),
                *("--model", model, "--device", setup.device),
                *("--precision", setup.precision, "--runs", str(3 * setup.runs)),
            ]
        )
        for who in ("ster", "transformers")
    )
    titles = (
        f"{TOKENS} tokens, one at a time",
        "times as fast",
        "tokens/s, ster / transformers",
        "steering at every layer costs",
        "same text",
        "a token / its weights read once",
        f"over reading (at most {WANTED})",
    )
    row = (
        "greedy, after a template's prompt",
        tables.fine_ratio(peer["seconds"], ster["seconds"]),
        tables.both(*(f"{TOKENS / one['seconds']:.1f}" for one in (ster, peer))),
        f"{ster['steering'] - 1:+.1%}",
        "yes" if ster["text"] == peer["text"] else "no",
        *beside_reading(ster["token"], read_weights(setup, model)),
    )
    return tables.table(titles, [row])


def read_weights(setup: Setup, model: str) -> dict[str, Any] | None:
    """Time reading the weights; on the cpu, of whose memory numpy can tell."""
    if setup.device != "cpu":
        return None
    read: dict[str, Any] | None = ask(
        [*PYTHON, "benchmarks.reading_weights", model, setup.precision]
    )
    return read


def beside_reading(token: float, read: dict[str, Any] | None) -> tuple[str, str]:
    """Put a token's time beside that of reading its weights."""
    if read is None:
        return f"{1e3 * token:.1f} ms", "–"
    rate = f"{read['bytes'] / read['seconds'] / 1e9:.1f} GB/s"
    times = f"{1e3 * token:.1f} ms / {1e3 * read['seconds']:.1f} ms ({rate})"
    return times, tables.fine_ratio(token, read["seconds"])


if __name__ == "__main__":
    main()
