"""A model of mlx-lm at work: reading, scoring and writing through its own module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from ster.decoder.mlx.failures import device_failures, wait_for
from ster.decoder.mlx.footprint import CACHE_BYTES
from ster.decoder.mlx.limits import buffer_cache
from ster.decoder.mlx.whole_steering import WholeSteering
from ster.decoder.mlx.whole_weights import MLXWholeWeights
from ster.decoder.whole import F32, WholeModel
from ster.stream.changes import Deltas
from ster.stream.packing import Tokens

# Rows of logits that are widened at once.
LOGIT_ROWS = 32


class MLXWholeModel(WholeModel):
    """A model of mlx-lm at work in one run; see ``WholeModel``.

    Args:
        weights: What is held of the checkpoint.
        keep: The weights stay when the run is over.
        make_caches: Makes the cache that the module writes with.
    """

    def __init__(
        self,
        weights: MLXWholeWeights,
        *,
        keep: bool,
        make_caches: Callable[[Any], Any],
    ) -> None:
        self._weights = weights
        self._keep = keep
        self._make_caches = make_caches
        buffer_cache.hold(CACHE_BYTES)

    def read_rows(
        self,
        prompts: Sequence[Tokens],
        positions: Sequence[Sequence[int]],
        layers: Sequence[int],
        deltas: Deltas,
        on_block: Callable[[int], None],
        prompt_lengths: Sequence[int],
    ) -> F32:
        """Read prompts of one length together; nothing is padded.

        What is above the top layer is never computed, since nobody asks for it.
        """
        width = self._weights.spec.hidden_size
        ends = np.cumsum([0, *map(len, positions)])
        read = np.empty((ends[-1], len(layers), width), np.float32)
        numbers: dict[int, list[int]] = defaultdict(list)
        for number, ids in enumerate(prompts):
            numbers[len(ids)].append(number)
        with self._working():
            steering = WholeSteering(deltas, prompt_lengths)
            for group in numbers.values():
                batch = [prompts[number] for number in group]
                ends_at = [prompt_lengths[number] for number in group]
                _, streams = self._run(batch, ends_at, steering, layers=layers)
                places = [np.asarray(positions[number]) for number in group]
                lines = np.repeat(np.arange(len(group)), [*map(len, places)])
                taken = mx.array(lines), mx.array(np.concatenate(places))
                rows = [streams[layer][taken].astype(mx.float32) for layer in layers]
                out = [np.arange(ends[each], ends[each + 1]) for each in group]
                read[np.concatenate(out)] = np.array(mx.stack(rows, axis=1))
        on_block(layers[-1])
        return read

    @property
    def max_position_embeddings(self) -> int:
        """Return the trained length in tokens."""
        return self._weights.spec.max_position_embeddings

    def score_responses(
        self,
        responses: Sequence[Tokens],
        deltas: Deltas,
        prompt_lengths: Sequence[int],
    ) -> list[float]:
        """Score response by response."""
        with self._working():
            steering = WholeSteering(deltas, prompt_lengths)
            return [
                _score(self._run([ids], [length], steering)[0][0], ids)
                for ids, length in zip(responses, prompt_lengths, strict=True)
            ]

    def write_tokens(
        self,
        prompt: Tokens,
        deltas: Deltas,
        sample: Callable[[F32], int],
        stop_ids: Collection[int],
        max_new_tokens: int,
    ) -> Iterator[int]:
        """Write with mlx-lm's own cache."""
        limit = self.max_position_embeddings - len(prompt)
        with self._working():
            model, _ = self._weights.take()
            caches = self._make_caches(model)
            steering = WholeSteering(deltas, [len(prompt)])
        following, start = prompt, 0
        for _ in range(min(max_new_tokens, limit)):
            with self._working():
                logits, _ = self._run(
                    [following], [len(prompt)], steering, start=start, cache=caches
                )
                row = np.array(logits[0, -1].astype(mx.float32))
            token = sample(row)
            if token in stop_ids:
                return
            yield token
            start += len(following)
            following = [token]

    def close(self) -> None:
        """Let go of the weights, unless they stay."""
        buffer_cache.let_go()
        if not self._keep:
            self._weights.release()
        wait_for(self._weights.device)

    @contextmanager
    def _working(self) -> Iterator[None]:
        with mx.stream(self._weights.device), device_failures():
            yield

    def _run(
        self,
        batch: Sequence[Tokens],
        prompt_lengths: Sequence[int],
        steering: WholeSteering,
        *,
        start: int = 0,
        layers: Collection[int] = (),
        cache: Any = None,
    ) -> tuple[mx.array, dict[int, mx.array]]:
        """Pass prompts of one length through; nothing is computed yet."""
        model, taps = self._weights.take()
        ids = mx.array(np.asarray(batch, np.int32))
        told = {} if cache is None else {"cache": cache}
        change = steering.change(prompt_lengths, start, start + ids.shape[1])
        with taps.passing(
            ids.shape, layers=layers, vectors=steering.vectors, change=change
        ) as streams:
            logits = model(ids, **told)
        return logits, streams


def _score(logits: mx.array, token_ids: Tokens) -> float:
    """Sum log-probabilities of (num_tokens, vocab_size) logits, a part at a time."""
    following, total = np.asarray(token_ids[1:], np.int64), 0.0
    mx.eval(logits)
    for at in range(0, len(following), LOGIT_ROWS):
        chosen = following[at : at + LOGIT_ROWS]
        part = np.array(logits[at : at + len(chosen)].astype(mx.float32), np.float64)
        part -= part.max(axis=1, keepdims=True)
        picked = part[np.arange(len(chosen)), chosen]
        total += float((picked - np.log(np.exp(part).sum(axis=1))).sum())
    return total
