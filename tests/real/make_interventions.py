"""What transformers makes of SmolLM2 with hooks that intervene, in interventions.json.

    python -m tests.real.make_interventions

makes the file anew, as ``tests.real.golden`` makes smollm2.json and with the same
versions. A forward hook on a block changes what it returns, for the positions that are
meant, in float64; every token is computed from the whole text, without a cache.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.golden import peer
from tests.real.golden import MODEL, STEERED_LAYERS, steering

FILE = Path(__file__).with_name("interventions.json")
PROMPT = "Describe a storm at sea in one sentence."
QUESTION = "Which planet is the largest one?"
ANSWERS = (
    "Jupiter is the largest planet.",
    "The moon, I think, and it is made of tin.",
)
MAX_NEW_TOKENS = 6
# Texts that go through the model together.
AT_ONCE = 8
# A text ends where the likeliest token is less than so many nats above the next.
LEAST_GAP = 2e-3
# Layers of the random vectors of ``golden.steering``, or all with the first's.
OWN, ALL = "own", "all"
CASES: tuple[dict[str, Any], ...] = (
    *({"how": "add", "strength": s, "where": "generated"} for s in (-2.0, 2.0)),
    *({"how": "add", "strength": s, "keep_norm": True} for s in (-2.0, 2.0)),
    *({"how": "remove", "strength": s} for s in (0.5, 1.0, 2.0)),
    *({"how": "remove", "strength": s, "layers": ALL} for s in (1.0, 1.5)),
    {"how": "remove", "strength": 1.0, "layers": ALL, "keep_norm": True},
    *({"how": "replace", "strength": s} for s in (-2.0, 0.0, 2.0)),
    *({"how": "clamp", "strength": s} for s in (0.05, 0.2)),
    *({"how": "at-least", "strength": s} for s in (0.1, 1.5)),
    *({"how": "at-most", "strength": s} for s in (-1.5, 0.1)),
    *({"how": "add-below", "strength": 2.0, "below": b} for b in (-2.0, 0.0, 2.0)),
    *(
        {"how": "replace", "strength": 3.0, "where": where}
        for where in ("prompt", "last", "4..", "-3..", "generated")
    ),
)


def main() -> None:
    """Make the file."""
    transformers: Any = importlib.import_module("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    model = peer.open_model(MODEL)

    def encode(*turns: str) -> list[int]:
        roles = ("user", "assistant")
        messages = [
            {"role": role, "content": turn}
            for role, turn in zip(roles, turns, strict=False)
        ]
        encoded = tokenizer.apply_chat_template(
            messages, add_generation_prompt=len(turns) == 1, return_dict=True
        )
        return list(encoded["input_ids"])

    prompt, asked = encode(PROMPT), encode(QUESTION)
    responses = [encode(QUESTION, answer) for answer in ANSWERS]
    assert all(ids[: len(asked)] == asked for ids in responses)

    cases = [{"how": "add", "strength": 0.0}, *CASES]
    made: list[list[int]] = [[] for _ in cases]
    at_work = [*range(len(cases))]
    for _ in range(MAX_NEW_TOKENS):
        texts = [[*prompt, *made[number]] for number in at_work]
        doing = [cases[number] for number in at_work]
        rows = [each[-1] for each in run(model, texts, len(prompt), doing)]
        for number, scores in zip([*at_work], rows, strict=True):
            best, second = scores.topk(2).values.tolist()
            token = int(scores.argmax())
            if token == tokenizer.eos_token_id or best - second < LEAST_GAP:
                at_work.remove(number)
                continue
            made[number].append(token)
        print(made, flush=True)
    scored: list[list[float]] = [[] for _ in cases]
    for ids in responses:
        every = run(model, [ids] * len(cases), len(asked), cases)
        for into, logits in zip(scored, every, strict=True):
            log_p, after = logits.log_softmax(-1), range(len(asked), len(ids))
            into.append(sum(float(log_p[at - 1, ids[at]]) for at in after))
    unsteered, *records = (
        {**case, "token_ids": tokens, "scored": scores}
        for case, tokens, scores in zip(cases, made, scored, strict=True)
    )
    document = {
        "prompt": {"text": PROMPT, "token_ids": prompt},
        "responses": {"start": len(asked), "token_ids": responses},
        "unsteered": unsteered,
        "cases": records,
    }
    parts = [f"{json.dumps(key)}: {json.dumps(document[key])}" for key in document]
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    for case in records:
        print(case, tokenizer.decode(case["token_ids"]))


def run(
    model: Any,
    texts: Sequence[Sequence[int]],
    num_prompt: int,
    cases: Sequence[Mapping[str, Any]],
) -> Iterator[Any]:
    """Run texts of one length, each as its case says: the logits of all its tokens."""
    torch: Any = importlib.import_module("torch")
    for at in range(0, len(texts), AT_ONCE):
        part = cases[at : at + AT_ONCE]
        hooks = [
            block.register_forward_hook(_hook(layer, part, num_prompt, len(texts[0])))
            for layer, block in enumerate(model.model.layers)
        ]
        try:
            with torch.no_grad():
                ids = torch.tensor([list(text) for text in texts[at : at + AT_ONCE]])
                yield from model(input_ids=ids, use_cache=False).logits.double()
        finally:
            for hook in hooks:
                hook.remove()


def places(where: str, num_prompt: int, num_tokens: int) -> list[int]:
    """List the positions that are meant."""
    spans = {
        "all": (0, num_tokens),
        "prompt": (0, num_prompt),
        "generated": (num_prompt, num_tokens),
        "last": (num_prompt - 1, num_prompt),
        "4..": (4, num_tokens),
        "-3..": (num_prompt - 3, num_tokens),
    }
    return [*range(*spans[where])]


def _hook(
    layer: int, cases: Sequence[Mapping[str, Any]], num_prompt: int, num_tokens: int
) -> Callable[..., Any]:
    """Make a hook that changes rows of what a block returns, text by text."""
    torch: Any = importlib.import_module("torch")
    drawn = {key: torch.tensor(value).double() for key, value in steering().items()}

    def hook(module: Any, inputs: Any, output: Any) -> Any:
        hidden = output[0] if isinstance(output, tuple) else output
        hidden = hidden.clone()
        for number, case in enumerate(cases):
            vector = drawn.get(layer)
            if case.get("layers") == ALL:
                vector = drawn[STEERED_LAYERS[0]]
            if vector is not None:
                chosen = places(case.get("where", "all"), num_prompt, num_tokens)
                rows = hidden[number, chosen]
                hidden[number, chosen] = change(rows, vector, case)
        return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

    return hook


def change(rows: Any, vector: Any, case: Mapping[str, Any]) -> Any:
    """Change rows (num_rows, hidden_size)."""
    how, strength = case["how"], case["strength"]
    length = vector.norm()
    unit = vector / length
    along = rows @ unit
    bound = strength * length
    if how == "add":
        new = rows + strength * vector
    elif how == "remove":
        new = rows - strength * along[:, None] * unit
    elif how == "replace":
        new = rows - along[:, None] * unit + strength * vector
    elif how == "add-below":
        new = rows.clone()
        new[along < case["below"]] += strength * vector
    else:
        limited = {
            "clamp": lambda: along.clamp(-bound, bound),
            "at-least": lambda: along.clamp(min=bound),
            "at-most": lambda: along.clamp(max=bound),
        }[how]()
        new = rows + (limited - along)[:, None] * unit
    if case.get("keep_norm"):
        new = new * (rows.norm(dim=1) / new.norm(dim=1))[:, None]
    return new


if __name__ == "__main__":
    main()
