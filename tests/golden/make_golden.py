"""Make the golden files with transformers, in float64. Run by hand, see README.md.

    python -m tests.golden.make_golden [CASE ...]

Every case is a small random checkpoint written to disk and read by transformers from
there, so its reading of config.json, tokenizer and template is recorded too.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.checkpoints import Config, make_tensors, random_ids, write_checkpoint
from tests.families import field_of
from tests.golden import peer, routing
from tests.golden.cases import CASES, prompts_of, steering_of
from tests.golden.golden import FOLDER, SEED, TEXTS, fingerprint
from tests.golden.text_cases import PROMPTS, TEXT_CASES, TextCase, write_text_case
from tests.quantized import plain_twin


def main() -> None:
    """Make the cases that are named, or all."""
    names = sys.argv[1:] or [*CASES, *TEXT_CASES]
    for name in names:
        if name in CASES:
            write(FOLDER / f"{name}.json", ids_document(*CASES[name]))
        else:
            write(TEXTS / f"{name}.json", text_document(TEXT_CASES[name]))


def write(path: Path, document: dict[str, Any]) -> None:
    """Write a file, one record a line."""
    records = "records" if "records" in document else "auto"
    lines = ",\n".join(
        f"{json.dumps(key)}:" + json.dumps(value, separators=(",", ":"))
        if key not in (records, "off")
        else f"{json.dumps(key)}:[\n"
        + ",\n".join(json.dumps(one, separators=(",", ":")) for one in value)
        + "]"
        for key, value in document.items()
    )
    path.parent.mkdir(exist_ok=True)
    path.write_text("{" + lines + "}\n")
    print(path.name, path.stat().st_size)


def ids_document(config: Config, lengths: Sequence[int]) -> dict[str, Any]:
    """Run prompts of token ids, plain and steered, and score a response."""
    prompts, steering = prompts_of(lengths), steering_of(config)
    response = random_ids(12, seed=12)
    # One that a next token may follow.
    limit = field_of(config, "max_position_embeddings")
    short = [p for p in prompts if len(p) < limit]
    middle = short[len(short) // 2]
    seed = SEED
    if routing.has_routers(config):
        seed = routing.find_seed(config, prompts, middle, steering)
    tensors = make_tensors(config, seed)
    with tempfile.TemporaryDirectory() as folder:
        twin, plain = plain_twin(config, tensors)
        write_checkpoint(Path(folder), twin, tensors=plain)

        def run(
            token_ids: Sequence[int], apart: float = routing.APART, **how: Any
        ) -> peer.Run:
            # A new model each time: dynamic scaling remembers the longest prompt.
            model = peer.open_model(Path(folder))
            with routing.watched(model) as gaps:
                made = peer.run(model, token_ids, **how)
            assert gaps.smallest > apart, "a router is not clear about a token"
            return made

        records = [record(prompt, run(prompt, routing.CLEAR)) for prompt in prompts]
        steered = record(middle, run(middle, steering=steering))
        scores = [
            peer.log_probability(run(response, steering=how).logits, response)
            for how in ({}, steering)
        ]
    return {
        "config": config,
        "seed": seed,
        "fingerprint": fingerprint(tensors),
        "steering": {str(layer): vector for layer, vector in steering.items()},
        "steered": steered,
        "scored": {
            "token_ids": response,
            "unsteered": float(f"{scores[0]:.9g}"),
            "steered": float(f"{scores[1]:.9g}"),
        },
        "records": records,
    }


def record(token_ids: Sequence[int], run: peer.Run) -> dict[str, Any]:
    """Write what one prompt gives: at its last token, and which token is next."""
    return {
        "token_ids": list(token_ids),
        "next": run.next,
        "residuals": peer.shortest(run.residuals),
        "logits": peer.shortest(run.logits[-1]),
    }


def text_document(case: TextCase) -> dict[str, Any]:
    """Run texts as they are, and as a user's message under the template."""
    transformers: Any = importlib.import_module("transformers")
    with tempfile.TemporaryDirectory() as folder:
        made = write_text_case(Path(folder), case)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = peer.open_model(made.directory)

        def ids(prompt: str, mode: str) -> list[int]:
            if mode == "off":
                return list(tokenizer(prompt).input_ids)
            turns = [{"role": "user", "content": prompt}]
            encoded = tokenizer.apply_chat_template(
                turns, add_generation_prompt=True, return_dict=True
            )
            return list(encoded["input_ids"])

        def records(mode: str) -> list[dict[str, Any]]:
            made = []
            for prompt in PROMPTS:
                run = peer.run(model, token_ids := ids(prompt, mode))
                written = record(token_ids, run)
                del written["logits"]
                made.append({"prompt": prompt} | written)
            return made

        return {
            "fingerprint": fingerprint(made.tensors),
            "auto": records("auto"),
            "off": records("off"),
        }


if __name__ == "__main__":
    main()
