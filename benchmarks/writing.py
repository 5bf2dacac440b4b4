"""How fast text is written, one token after the other, steered and not.

``python -m benchmarks.writing`` runs one program, ster or transformers, in its
own process and prints JSON; ``table`` runs both and draws. The model is one whose texts
never end, so both write all tokens.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from benchmarks import steered, tables
from benchmarks.commands import DTYPES, PYTHON, Setup
from benchmarks.process import ask, say
from benchmarks.rates import beside_reading, timer, token_seconds

PROMPT = "Tell me a long story about a fox who lives by the sea."
# What a token may take, over reading the weights once.
WANTED = 1.3
# The bare products of a larger model are not timed.
MOST_PRODUCT_BYTES = 2 << 30
# Too small to change a token, and added to every row like any other.
FAINT = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is written, and how often.

    Args:
        tokens: Of an answer.
        few_tokens: Of a short one; what the other takes longer is the time of the
            tokens between, since prompt and start-up are in both.
        turns: Answers of each kind, for each run of the benchmark.
    """

    tokens: int = 64
    few_tokens: int = 8
    turns: int = 3


SHORT = Sizes(tokens=6, few_tokens=2, turns=1)


def main() -> None:
    """Time one program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--who", choices=["ster", "transformers"], required=True)
    for name in ("--model", "--device", "--precision"):
        parser.add_argument(name, required=True)
    for name in ("--runs", "--tokens", "--few-tokens"):
        parser.add_argument(name, type=int, required=True)
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

    def write(tokens: int, *steer: ster.SteeringVector) -> str:
        return runtime.generate(PROMPT, max_new_tokens=tokens, steer=steer)

    plain = timer(lambda: write(options.tokens))
    steered = timer(lambda: write(options.tokens, vector))
    few = timer(lambda: write(options.few_tokens))
    runs = [(plain(), steered(), few()) for _ in range(options.runs)]
    return {
        "seconds": median(run[0] for run in runs),
        "steering": median(run[1] / run[0] for run in runs),
        "token": token_seconds(
            [(run[2], run[0]) for run in runs], options.tokens - options.few_tokens
        ),
        "text": write(options.tokens),
    }


def time_transformers(options: argparse.Namespace) -> dict[str, Any]:
    """Time ``generate`` of transformers, with its cache, the likeliest token."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from benchmarks.peer import encode

    device = {"metal": "mps", "cuda": "cuda"}.get(options.device, "cpu")
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(
        options.model, dtype=getattr(torch, DTYPES[options.precision])
    ).to(device)
    ids = torch.tensor(encode(options.model, [PROMPT], template="auto"), device=device)

    def write() -> torch.Tensor:
        with torch.inference_mode():
            return model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=options.tokens,
                do_sample=False,
            )

    once = timer(write)
    length = ids.shape[1]
    return {
        "seconds": median(once() for _ in range(options.runs)),
        "text": tokenizer.decode(write()[0, length:], skip_special_tokens=True),
    }


def table(setup: Setup, sizes: Sizes) -> str:
    """Run both and draw them side by side."""
    say(f"writing {sizes.tokens} tokens")
    model = str(steered.endless(setup))
    ster, peer = (
        ask(
            [
                *(*PYTHON, "benchmarks.writing", "--who", who),
                *("--model", model, "--device", setup.device),
                *("--precision", setup.precision),
                *("--runs", str(sizes.turns * setup.runs)),
                *("--tokens", str(sizes.tokens)),
                *("--few-tokens", str(sizes.few_tokens)),
            ]
        )
        for who in ("ster", "transformers")
    )
    titles = (
        f"{sizes.tokens} tokens, one at a time",
        "times as fast",
        "tokens/s, ster / transformers",
        "steering at every layer costs",
        "same text",
        "a token / its weights read once",
        f"over reading (at most {WANTED})",
        "its bare products over reading",
    )
    row = (
        "greedy",
        tables.fine_ratio(peer["seconds"], ster["seconds"]),
        tables.both(*(f"{sizes.tokens / one['seconds']:.1f}" for one in (ster, peer))),
        f"{ster['steering'] - 1:+.1%}",
        "yes" if ster["text"] == peer["text"] else "no",
        *reading_cells(
            ster["token"],
            read_weights(setup, model),
            partial(time_products, setup, model),
        ),
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


def time_products(setup: Setup, model: str) -> float:
    """Time the bare products of a token, in numpy on the cpu."""
    asked = ["--model", model, "--device", "cpu", "--precision", setup.precision]
    seconds: float = ask([*PYTHON, "benchmarks.products", *asked, "--token"])["seconds"]
    return seconds


def reading_cells(
    token: float, read: dict[str, Any] | None, products: Callable[[], float]
) -> tuple[str, str, str]:
    """Write a token's time, beside that of reading its weights where it is known.

    Args:
        token: In seconds.
        read: What reading its weights took.
        products: Times its bare products, where they lie in memory whole.
    """
    if read is None:
        return f"{1e3 * token:.1f} ms", "–", "–"
    bare = "–"
    if read["bytes"] <= MOST_PRODUCT_BYTES:
        bare = tables.fine_ratio(products(), read["seconds"])
    return *beside_reading(token, read["seconds"], read["bytes"]), bare


if __name__ == "__main__":
    main()
