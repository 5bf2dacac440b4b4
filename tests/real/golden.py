"""What transformers makes of SmolLM2 in float64, kept in smollm2.json.

    python -m tests.real.golden

makes the file anew, from the checkpoint of make_smollm2.py, in an environment that has
torch and transformers (the extra ``bench``). It was made with torch 2.13.0 (on the cpu)
and transformers 5.24.0, attention ``eager``.
"""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.golden import make_points, peer

FILE = Path(__file__).with_name("smollm2.json")
MODEL = Path("build/real_model/smollm2-f32")
LAYERS = (0, 13, 29)
PROMPTS = {
    "auto": (
        "Which planet is the largest one?",
        "Name three things that float on water.",
        "Wie weit ist der Mond entfernt – 384 400 km?",
    ),
    "off": ("The opposite of warm is", "def add(a, b):\n    return a +"),
}
# Read at other tokens than the last; the template keeps the spaces.
TOKENS = ("Which planet is the largest one?", " Wie weit ist der Mond entfernt? ")
PLACES = (4, -7)
GREEDY = "Describe a storm at sea in one sentence."
MAX_NEW_TOKENS = 24
RESPONSES = ("A storm is loud, and the sea is wild.", "Cats are 12 feet long.", "Yes.")
STEERED_LAYERS = (9, 15)
STEERING_LENGTH = 22.0


def read() -> dict[str, Any]:
    """Read the file."""
    document: dict[str, Any] = json.loads(FILE.read_bytes())
    return document


def steering(hidden_size: int = 576) -> dict[int, NDArray[np.float32]]:
    """Draw a vector for each of two layers; its direction means nothing."""
    draw = random.Random("smollm2 steering").random
    made = {}
    for layer in STEERED_LAYERS:
        values = np.array([2 * draw() - 1 for _ in range(hidden_size)])
        values *= STEERING_LENGTH / np.linalg.norm(values)
        made[layer] = values.astype(np.float32)
    return made


def main() -> None:
    """Make the file."""
    transformers: Any = importlib.import_module("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    model = peer.open_model(MODEL)
    vectors = {layer: vector.tolist() for layer, vector in steering().items()}

    def templated(role: str, text: str) -> list[int]:
        encoded = tokenizer.apply_chat_template(
            [{"role": role, "content": text}],
            add_generation_prompt=role == "user",
            return_dict=True,
        )
        return list(encoded["input_ids"])

    def answer(steering: peer.Steering) -> str:
        ids = templated("user", GREEDY)
        made = peer.greedy(model, ids, MAX_NEW_TOKENS, steering)
        stop = tokenizer.eos_token_id
        kept = made[: made.index(stop)] if stop in made else made
        text: str = tokenizer.decode(kept, skip_special_tokens=True)
        return text

    def scored(text: str) -> dict[str, Any]:
        ids = templated("assistant", text)
        plain, steered = (
            peer.log_probability(peer.run(model, ids, how).logits, ids)
            for how in ({}, vectors)
        )
        return {"text": text, "unsteered": plain, "steered": steered, "token_ids": ids}

    document = {
        "layers": LAYERS,
        "greedy": {"prompt": GREEDY, "max_new_tokens": MAX_NEW_TOKENS}
        | {"unsteered": answer({}), "steered": answer(vectors)},
        "scored": [scored(text) for text in RESPONSES],
        "auto": [record(model, p, templated("user", p)) for p in PROMPTS["auto"]],
        "off": [record(model, p, tokenizer(p).input_ids) for p in PROMPTS["off"]],
        "points": record_points(model, templated("user", TOKENS[0])),
        "tokens": [record_tokens(model, tokenizer, prompt) for prompt in TOKENS],
    }
    lines = (f"{json.dumps(key)}: {json.dumps(document[key])}" for key in document)
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(document["greedy"], document["scored"], FILE.stat().st_size, sep="\n")


def record(model: Any, prompt: str, token_ids: Sequence[int]) -> dict[str, Any]:
    """Write what one prompt gives at its last token; seven digits are f32's."""
    run = peer.run(model, token_ids)
    rows = {str(layer): peer.shortest(run.residuals[layer], 7) for layer in LAYERS}
    return {
        "prompt": prompt,
        "token_ids": list(token_ids),
        "next": run.next,
        "layers": rows,
    }


def record_points(model: Any, token_ids: Sequence[int]) -> dict[str, Any]:
    """Write what lies inside some blocks at the last token."""
    points, _ = make_points.run(model, {"model_type": "llama"}, token_ids, {})
    rows = {each: peer.shortest(points[each][list(LAYERS)], 7) for each in points}
    return {"prompt": TOKENS[0], "rows": rows}


def record_tokens(model: Any, tokenizer: Any, prompt: str) -> dict[str, Any]:
    """Write what a templated prompt gives at its own tokens, and at some others."""
    turns = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, tokenize=False
    )
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    start = text.index(prompt)
    stop = start + len(prompt)
    own = [
        place
        for place, (first, last) in enumerate(encoded.offset_mapping)
        if first < stop and last > start
    ]
    streams = peer.run(model, encoded.input_ids).streams[list(LAYERS)]
    rows = {
        "text": streams[:, own[-1]],
        "mean": streams[:, own].mean(axis=1),
        **{str(place): streams[:, place] for place in PLACES},
    }
    return {
        "prompt": prompt,
        "token_ids": list(encoded.input_ids),
        "own": own,
        "rows": {name: peer.shortest(each, 7) for name, each in rows.items()},
    }


if __name__ == "__main__":
    main()
