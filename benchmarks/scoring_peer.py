"""The peer of scoring: log-probabilities of whole texts from transformers, steered.

Texts are sorted by length and padded on the right, so that causal attention needs no
mask; a hook on one layer steers; only tokens that count go through the head. Each batch
is run without steering and once at every strength. Prints ``{"seconds", "shifts"}``.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from benchmarks.peer import batches
from benchmarks.steering_peer import Steered, load, parse


def main() -> None:
    """Load, warm up, score, and say how long it took."""
    options = parse(argparse.ArgumentParser(description=__doc__))
    with open(options.input, encoding="utf-8") as file:
        scored = json.load(file)
    token_ids, starts = scored["token_ids"], scored["starts"]
    strengths = [0.0, *options.strengths]
    scores = torch.zeros(len(strengths), len(token_ids), dtype=torch.float64)
    steered = load(options)
    with torch.inference_mode():
        score(steered, token_ids[:1], starts[:1], 0.0)
        started = time.perf_counter()
        for batch in batches(token_ids, options.batch_size):
            texts = [token_ids[index] for index in batch]
            firsts = [starts[index] for index in batch]
            for at, strength in enumerate(strengths):
                scores[at, batch] = score(steered, texts, firsts, strength)
        seconds = time.perf_counter() - started
    rises = scores[1:] - scores[0]
    shifts = (rises[:, 0::2] - rises[:, 1::2]).mean(dim=1)
    print(json.dumps({"seconds": seconds, "shifts": shifts.tolist()}))


def score(
    steered: Steered, texts: list[list[int]], starts: list[int], strength: float
) -> torch.Tensor:
    """Sum the log-probabilities of each text's tokens from its start on, in float64."""
    device, longest = steered.model.device, max(map(len, texts))
    padded = torch.zeros(len(texts), longest, dtype=torch.long)
    counts = torch.zeros(len(texts), longest, dtype=torch.bool)
    for at, (ids, start) in enumerate(zip(texts, starts, strict=True)):
        padded[at, : len(ids)] = torch.tensor(ids)
        counts[at, start : len(ids)] = True
    ids, counted = padded.to(device), counts.to(device)
    with steered.at(torch.full((len(texts),), strength)):
        hidden = steered.model.base_model(ids, use_cache=False).last_hidden_state
    head = steered.model.get_output_embeddings()
    logits = head(hidden[:, :-1][counted[:, 1:]]).float()
    chosen = logits.gather(1, ids[counted][:, None])[:, 0] - logits.logsumexp(1)
    sums = torch.zeros(len(texts), dtype=torch.float64)
    return sums.index_add(0, counts.nonzero()[:, 0], chosen.double().cpu())


if __name__ == "__main__":
    main()
