"""Ways to ask a checkpoint for logits, tokens and scores, given token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ster import SteeringVector
from ster.runtime import Runtime
from ster.workflows.steering import sum_deltas
from tests.checkpoints import text
from tests.grown import grow_tokens

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

    def watch(decoder: Any) -> None:
        choose = decoder.choose

        def see(hidden: Any, drawing: Any) -> Any:
            seen.append(decoder.unembed(hidden)[0].copy())
            return choose(hidden, drawing)

        decoder.choose = see

    deltas = sum_deltas(steering(runtime, vectors), session)
    (made,) = grow_tokens(session, [prompt], count, [deltas], watch=watch)
    return made, np.stack(seen[:count])


def scores(
    runtime: Runtime, responses: Sequence[Sequence[int]], vectors: Vectors = NONE
) -> list[float]:
    """Score responses, several of them in one stream."""
    texts = [text(response) for response in responses]
    return runtime.score_responses(texts, steer=steering(runtime, vectors))
