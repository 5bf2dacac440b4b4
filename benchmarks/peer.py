"""The peer: the same rows from transformers, by a script that a careful person writes.

Prompts are sorted by length and padded on the right, so that causal attention needs no
mask and takes its fastest path; the base model has no head; hooks keep only the last
token's row, and read the last block before the final norm. It imports nothing of ster.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

Rows = dict[int, torch.Tensor]


def main() -> None:
    """Read prompts, run the model, and write the rows as one numpy array."""
    options = read_options()
    options.device = find_device(options.device)
    if options.device == "cpu":
        torch.set_num_threads(usable_cores())
    with open(options.input, encoding="utf-8") as file:
        prompts: list[str] = json.load(file)["prompts"]
    token_ids = encode(options.model, prompts, template=options.chat_template)
    model = load_model(options)
    with torch.inference_mode():
        rows = extract(model, token_ids, options.layers, options.batch_size)
    np.save(options.output, rows)


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--model", "--input", "--output"):
        parser.add_argument(name, required=True)
    parser.add_argument("--chat-template", choices=["auto", "off"], default="auto")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--layers", type=int, help="read this many of the first blocks")
    parser.add_argument(
        "--cut", action="store_true", help="drop the blocks that nobody asked for"
    )
    return parser.parse_args()


def find_device(word: str) -> str:
    """Take torch's word for ster's device, or the cpu where torch does not have it."""
    if word == "metal" and torch.backends.mps.is_available():
        return "mps"
    return "cuda" if word == "cuda" and torch.cuda.is_available() else "cpu"


def usable_cores() -> int:
    """Count the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def encode(model: str, prompts: list[str], *, template: str) -> list[list[int]]:
    """Turn each prompt, as one user message under a template if any, into token ids."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    if template == "off" or not tokenizer.chat_template:
        return list(tokenizer(prompts).input_ids)
    texts = tokenizer.apply_chat_template(
        [[{"role": "user", "content": prompt}] for prompt in prompts],
        add_generation_prompt=True,
        tokenize=False,
    )
    return list(tokenizer(texts, add_special_tokens=False).input_ids)


def load_model(options: argparse.Namespace) -> Any:  # noqa: ANN401
    """Load the decoder without its head, cut to the blocks that are read if asked."""
    model = AutoModel.from_pretrained(
        options.model,
        dtype=getattr(torch, options.dtype),
        attn_implementation="sdpa",
    )
    if options.cut:
        model.layers = model.layers[: options.layers]
        model.config.num_hidden_layers = options.layers
    return model.eval().to(options.device)


def extract(
    model: Any,  # noqa: ANN401
    token_ids: list[list[int]],
    num_layers: int | None,
    batch_size: int,
) -> np.ndarray:
    """Run the batches; give (num_prompts, num_layers, hidden_size) f32."""
    read = list(model.layers)[:num_layers]
    shape = (len(token_ids), len(read), model.config.hidden_size)
    out = np.empty(shape, np.float32)
    for batch in batches(token_ids, batch_size):
        lengths = torch.tensor([len(token_ids[index]) for index in batch])
        padded = torch.zeros(len(batch), int(lengths.max()), dtype=torch.long)
        for row, index in enumerate(batch):
            padded[row, : lengths[row]] = torch.tensor(token_ids[index])
        rows = run(model, read, padded.to(model.device), lengths.to(model.device) - 1)
        out[batch] = rows.float().cpu().numpy()
    return out


def batches(token_ids: list[list[int]], size: int) -> Iterator[list[int]]:
    """Yield indices of prompts of like length."""
    order = sorted(range(len(token_ids)), key=lambda index: len(token_ids[index]))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def run(
    model: Any,  # noqa: ANN401
    read: list[torch.nn.Module],
    padded: torch.Tensor,
    last: torch.Tensor,
) -> torch.Tensor:
    """Run one batch; give the last token's row after each block that is read."""
    rows: list[torch.Tensor] = []
    each = torch.arange(len(last), device=last.device)

    def keep(_module: torch.nn.Module, _args: object, output: Any) -> None:  # noqa: ANN401
        hidden = output[0] if isinstance(output, tuple) else output
        rows.append(hidden[each, last])

    hooks = [block.register_forward_hook(keep) for block in read]
    try:
        model(input_ids=padded, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(rows, dim=1)


if __name__ == "__main__":
    main()
