"""Answering prompts and scoring responses: text in, text or numbers out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ster.checkpoint.stop_tokens import read_stop_ids
from ster.decoder.contract import Decoder
from ster.documents.prompts import check_prompts
from ster.errors import DirectionError, NumericsError, PromptError
from ster.runs.generation import generate_tokens, score_responses
from ster.runs.plan import describe_peak, megabytes, refuse_if_too_large, split_waves
from ster.runs.sampling import Sampling, make_sampler
from ster.runs.session import LoadedModel
from ster.stream.rotary import rotary_length
from ster.text import counted

F32 = NDArray[np.float32]


def stream_answer(
    model: LoadedModel,
    prompt: str,
    *,
    system: str | None,
    deltas: Mapping[int, F32],
    sampling: Sampling,
    max_new_tokens: int,
) -> Iterator[str]:
    """Answer a prompt, yielding text as it becomes readable.

    Everything that can be refused without weights is refused before this returns.

    Args:
        model: What answers.
        prompt: The user's turn under a template, else the text to continue.
        system: The system's turn before it; needs the model's template.
        deltas: For some layers, a vector (hidden_size,) that is added to every row.
        sampling: How tokens are chosen.
        max_new_tokens: At most this many.

    Raises:
        PromptError: The prompt cannot be encoded or leaves no room for an answer.
        SterError: Something about the checkpoint.
    """
    check_prompts([prompt])
    if max_new_tokens < 1:
        raise PromptError("max_new_tokens must be greater than zero")
    token_ids = encode_turns(model, prompt, system)
    stop_ids = read_stop_ids(model.files)
    return _stream(model, token_ids, stop_ids, deltas, sampling, max_new_tokens)


def encode_turns(model: LoadedModel, prompt: str, system: str | None) -> Sequence[int]:
    """Encode what is to be answered, and refuse what leaves no room."""
    turns: list[dict[str, str]] = [{"role": "user", "content": prompt}]
    if system is not None:
        turns.insert(0, {"role": "system", "content": system})
        label = model.encoder.chat_template
        if label != "applied":
            raise PromptError(
                "a conversation of several turns needs the model's chat template, and "
                f"this run's chat template is {label}"
            )
    token_ids = model.encoder.encode_conversation(turns)
    model.check_tokens([token_ids])
    limit = model.config.max_position_embeddings
    if len(token_ids) >= limit:
        raise PromptError(
            f"prompt contains {len(token_ids)} tokens, model context allows fewer "
            f"than {limit}"
        )
    return token_ids


def score_texts(
    model: LoadedModel,
    texts: Sequence[str],
    deltas: Mapping[int, F32],
    batch_size: int,
) -> list[float]:
    """Sum each response's log-probabilities, one stream for each batch.

    Raises:
        DirectionError: A batch would be empty.
        PromptError: A text cannot be encoded, or is given instead of a list.
        NumericsError: A score is no finite number.
    """
    if isinstance(texts, str):
        raise PromptError("responses must be a list of strings, not one string")
    if batch_size < 1:
        raise DirectionError("strength selection requires batch size of at least one")
    if not texts:
        return []
    token_ids = [model.encoder.encode_response(text) for text in texts]
    model.check_tokens(token_ids)
    scores: list[float] = []
    with open_answering(model, max(map(len, token_ids))) as decoder:
        for batch in split_batches(model, token_ids, batch_size):
            scores += score_responses(decoder, [token_ids[i] for i in batch], deltas)
    if not np.isfinite(scores).all():
        raise _not_finite("a log-probability is", model)
    return scores


def split_batches(
    model: LoadedModel, token_ids: Sequence[Sequence[int]], batch_size: int
) -> list[range]:
    """Cut responses into batches of a size, or of fewer where memory bounds them."""
    budget, rope = model.budget(max(map(len, token_ids)), 0), model.config.rope
    fits = budget.allows(0, budget.memory_bytes)
    waves = split_waves(
        token_ids,
        [rotary_length(rope, len(ids)) for ids in token_ids],
        lambda n, load: n <= batch_size and fits(n, load),
        budget.load,
    )
    return [wave for wave, _ in waves]


def open_answering(
    model: LoadedModel, longest: int
) -> AbstractContextManager[Decoder[Any]]:
    """Open all blocks, resident where they fit: every token needs them all.

    Raises:
        CapacityError: Not even one block at a time fits.
    """
    budget, config = model.budget(longest, num_layers=0), model.config
    refuse_if_too_large(budget.peak(0, 1, longest), budget.memory_bytes)
    # The head may be an f32 copy of the embedding.
    head_bytes = 4 * config.vocab_size * config.hidden_size
    needed = budget.peak(config.num_hidden_layers, 1, longest) + head_bytes
    resident = needed <= budget.memory_bytes
    if not resident:
        model.reporter.warn(
            f"the weights need {megabytes(needed)} and may use "
            f"{megabytes(budget.memory_bytes)}, so they are read anew for every token"
        )
    if model.verbose:
        weights = "resident" if resident else "read for each token"
        model.reporter.note(
            f"plan: {counted(config.num_hidden_layers, 'block')} and the head, weights "
            f"{weights}; {describe_peak(needed, budget.memory_bytes)}"
        )
    return model.open_model(resident=resident)


def _not_finite(what: str, model: LoadedModel) -> NumericsError:
    way = "" if model.precision == "f32" else "; use f32"
    return NumericsError(f"{what} not finite at --precision {model.precision}{way}")


def _stream(
    model: LoadedModel,
    token_ids: Sequence[int],
    stop_ids: frozenset[int],
    deltas: Mapping[int, F32],
    sampling: Sampling,
    max_new_tokens: int,
) -> Iterator[str]:
    """Open the weights and generate; text that is not whole yet waits."""
    sample = make_sampler(sampling)

    def checked(logits: F32) -> int:
        if not np.isfinite(logits).all():
            raise _not_finite("the scores of the next token are", model)
        return sample(logits)

    text = model.encoder.open_text()
    with open_answering(model, len(token_ids)) as decoder:
        tokens = generate_tokens(
            decoder,
            token_ids,
            deltas=deltas,
            sample=checked,
            stop_ids=stop_ids,
            max_new_tokens=max_new_tokens,
        )
        for token in tokens:
            if piece := text.add(token):
                yield piece
    if piece := text.rest():
        yield piece
