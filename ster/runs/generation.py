"""The token-major loop: prompt in one pass, then one token at a time over all blocks.

It knows token ids only, never text. The residual stream is the local variable
``hidden``; a steering vector is added to every row of it, in prompt and generated
tokens alike, after the block whose layer it was fitted at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.decoder.contract import Cache, Decoder, Wave
from ster.runs.layer_inputs import next_token_waves, pack_tokens, plan_waves
from ster.stream.packing import Ints, PackedPrompts

Array = TypeVar("Array")
F32 = NDArray[np.float32]
# Rows whose logits are held at once while responses are scored.
LOGIT_ROWS = 32


def generate_tokens(
    decoder: Decoder[Array],
    prompt: Sequence[int],
    *,
    deltas: Mapping[int, F32],
    sample: Callable[[F32], int],
    stop_ids: Collection[int],
    max_new_tokens: int,
) -> Iterator[int]:
    """Continue a prompt, yielding each token as soon as it is known.

    Stops before a stop token, after ``max_new_tokens``, or where the trained length is
    full.

    Args:
        decoder: The blocks, with head.
        prompt: Token ids, fewer than ``max_position_embeddings``.
        deltas: For some layers, a vector (hidden_size,) that is added to every row.
        sample: Chooses a token from logits, (vocab_size,).
        stop_ids: The end-of-text tokens.
        max_new_tokens: At most this many.
    """
    caches, vectors = decoder.make_caches(), steering_vectors(decoder, deltas)
    packed = pack_tokens(decoder, [prompt])
    top = decoder.config.num_hidden_layers - 1
    wave_of = plan_waves(decoder, packed, packed.last_rows, top)
    token_ids, position = packed.token_ids, len(prompt)
    room = decoder.config.max_position_embeddings - len(prompt)
    for _ in range(min(max_new_tokens, room)):
        hidden = run_blocks(decoder, token_ids, wave_of, caches, vectors)
        token = sample(decoder.unembed(hidden)[-1])
        if token in stop_ids:
            return
        yield token
        token_ids = np.array([token])
        wave_of = next_token_waves(decoder, position)
        position += 1


def score_responses(
    decoder: Decoder[Array],
    responses: Sequence[Sequence[int]],
    deltas: Mapping[int, F32],
) -> list[float]:
    """Sum the log-probabilities of each response's tokens, each given those before it.

    The first token has none before it and does not count. Responses run as one packed
    stream.
    """
    packed = pack_tokens(decoder, responses)
    top = decoder.config.num_hidden_layers - 1
    wave_of = plan_waves(decoder, packed, None, top)
    vectors = steering_vectors(decoder, deltas)
    hidden = run_blocks(decoder, packed.token_ids, wave_of, None, vectors)
    return [
        _sum_log_probabilities(decoder, hidden, packed, number, ids)
        for number, ids in enumerate(responses)
    ]


def steering_vectors(
    decoder: Decoder[Array], deltas: Mapping[int, F32]
) -> dict[int, Array]:
    """Bring what is added after each layer into the decoder's arrays, once."""
    return {layer: decoder.vector(delta) for layer, delta in deltas.items()}


def run_blocks(
    decoder: Decoder[Array],
    token_ids: Ints,
    wave_of: Callable[[int], Wave[Array]],
    caches: Sequence[Cache[Array]] | None,
    vectors: Mapping[int, Array],
) -> Array:
    """Run all blocks over a stream, steering it between them."""
    hidden = decoder.embed(token_ids)
    for layer in range(decoder.config.num_hidden_layers):
        with decoder.block(layer) as block:
            hidden = block(hidden, wave_of(layer), caches[layer] if caches else None)
            if not decoder.resident:
                decoder.materialize(hidden)
        if layer in vectors:
            hidden = decoder.steer(hidden, vectors[layer])
    return hidden


def _sum_log_probabilities(
    decoder: Decoder[Array],
    hidden: Array,
    packed: PackedPrompts,
    number: int,
    token_ids: Sequence[int],
) -> float:
    rows, following = packed.rows_of(number)[:-1], np.array(token_ids[1:], np.int64)
    total = 0.0
    for at in range(0, len(rows), LOGIT_ROWS):
        part = slice(at, at + LOGIT_ROWS)
        logits = decoder.unembed(decoder.take(hidden, rows[part])).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        chosen = logits[np.arange(len(logits)), following[part]]
        total += float((chosen - np.log(np.exp(logits).sum(axis=1))).sum())
    return total
