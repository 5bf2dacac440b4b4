"""Ways to ask a checkpoint for logits, tokens and scores, given token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ster import SteeringVector
from ster.runs.writing import write_tokens
from ster.runtime import Runtime
from ster.workflows.steering import sum_deltas
from tests.checkpoints import text

F32 = NDArray[np.float32]
Vectors = Mapping[int, NDArray[Any]]
NONE: Vectors = {}


def steering(runtime: Runtime, vectors: Vectors) -> list[SteeringVector]:
    """Make what the library takes of vectors by layer."""
    if not vectors:
        return []
    layers = sorted(vectors)
    return [
        SteeringVector(
            layers=tuple(layers),
            array=np.array([vectors[layer] for layer in layers], np.float32),
            model=runtime.model,
            trait_name="any",
            method="caa",
        )
    ]


def continue_greedily(
    runtime: Runtime, prompt: Sequence[int], count: int = 1, vectors: Vectors = NONE
) -> tuple[list[int], F32]:
    """Generate tokens, the likeliest each time and past any end of text.

    Returns:
        The tokens, and the logits that each was chosen from, (count, vocab_size).
    """
    session, seen = runtime._session, []

    def choose(logits: F32) -> int:
        seen.append(logits.copy())
        return int(logits.argmax())

    layers = session.spec.num_hidden_layers
    plan = session.plan([prompt], layers, head=True, new_tokens=count, repeats=True)
    with session.open(plan) as decoder:
        tokens = write_tokens(
            decoder,
            prompt,
            deltas=sum_deltas(steering(runtime, vectors), session),
            sample=choose,
            stop_ids=(),
            max_new_tokens=count,
        )
        made = list(tokens)
    return made, np.stack(seen)


def scores(
    runtime: Runtime, responses: Sequence[Sequence[int]], vectors: Vectors = NONE
) -> list[float]:
    """Score responses, several of them in one stream."""
    texts = [text(response) for response in responses]
    return runtime.score_responses(texts, steer=steering(runtime, vectors))
