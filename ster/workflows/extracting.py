"""Reading activations into arrays and documents."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ster.documents.activations.artifact import ActivationWriter
from ster.documents.activations.shown import ShownTokens
from ster.documents.activations.value import Activations
from ster.documents.prompt_sets.value import Prompts
from ster.documents.prompts import check_prompts
from ster.errors import UsageError
from ster.runs.plan import Plan
from ster.runs.reading import F32, Reading, plan_reading, want_rows
from ster.runs.session import Session
from ster.runs.showing import describe_tokens
from ster.text import quoted
from ster.token_choice import TokenChoice


def collect(reading: Reading, *, keep: bool = False) -> Activations:
    """Read all rows of a reading.

    Args:
        reading: What is read.
        keep: Whether an interrupt leaves the prompts whose waves are done.

    Raises:
        KeyboardInterrupt: It came before any was, or nothing is to be kept.
    """
    arrays: list[F32] = []
    done = 0
    try:
        for wave, rows in reading.waves():
            arrays.append(rows)
            done = wave.stop
    except KeyboardInterrupt:
        if not (keep and done):
            raise
        total = len(reading.prompts)
        reading.session.reporter.note(f"stopped: kept {done} of {total} prompts")
    parts = describe_reading(reading.first(done))
    return Activations(array=np.concatenate(arrays), **parts)


def describe_reading(reading: Reading) -> dict[str, Any]:
    """Collect what is said of activations; see ``Description``."""
    session = reading.session
    return {
        "layers": reading.layers,
        "prompts": tuple(reading.prompts),
        "model": session.files.model,
        "model_revision": session.files.revision,
        "hidden_size": session.spec.hidden_size,
        "read": reading.tokens.words,
        "tokens": describe_tokens(
            session.encoder, reading.token_ids, reading.own, reading.wanted
        ),
        "labels": reading.labels,
        "precision": session.precision,
        "chat_template": session.encoder.chat_template,
    }


def show_tokens(
    session: Session, text: str, tokens: TokenChoice, role: str, asked: str | None
) -> ShownTokens:
    """Encode one text and say what its tokens are; no weight is opened.

    Raises:
        SterError: The text or the choice of tokens is refused.
    """
    prompts = check_prompts([text])
    encoder = session.encoder
    located = encoder.locate(prompts, [asked], role=role)
    session.check_tokens(located.token_ids)
    wanted = want_rows(encoder, located.token_ids, located.own, tokens)
    every = describe_tokens(encoder, located.token_ids, located.own)
    is_read = np.zeros(len(every), np.bool_)
    is_read[np.asarray(wanted.positions[0])] = True
    return ShownTokens(
        tokens=every,
        is_read=is_read,
        read=tokens.words,
        chat_template=encoder.chat_template,
    )


def check_on_interrupt(word: str) -> None:
    """Refuse an unknown way to be interrupted.

    Raises:
        UsageError: It is neither ``raise`` nor ``keep``.
    """
    if word not in ("raise", "keep"):
        raise UsageError(
            f"unknown on_interrupt {quoted(str(word))}; expected raise or keep",
            field="on_interrupt",
            found=word,
            expected=("raise", "keep"),
        )


def write_activations(
    session: Session,
    prompts: Prompts,
    layers: tuple[int, ...],
    output: str | os.PathLike[str],
) -> Plan:
    """Write rows to a document as they come; memory does not grow with the prompts.

    Raises:
        SterError: A prompt or weight is refused, or the output cannot be written.
    """
    reading = plan_reading(session, prompts, layers, repeats=session.keeps_blocks)
    with ActivationWriter(
        output,
        model=session.files.model,
        model_revision=session.files.revision,
        hidden_size=session.spec.hidden_size,
    ) as writer:
        for wave, rows in reading.waves():
            for index, row in zip(wave, rows, strict=True):
                writer.write(reading.prompts[index], layers, row)
    return reading.plan
