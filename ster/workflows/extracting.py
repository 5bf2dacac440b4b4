"""Reading activations into arrays and documents."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ster.documents.activations.description import Description
from ster.documents.activations.files import open_writer
from ster.documents.activations.shown import ShownTokens
from ster.documents.activations.value import Activations
from ster.documents.prompts import check_asked_of, check_prompts
from ster.runs.gathering import Gathering
from ster.runs.plan import Plan
from ster.runs.reading import Reading, want_rows
from ster.runs.session import Session
from ster.runs.showing import describe_tokens
from ster.token_choice import TokenChoice


def collect(
    reading: Reading, *, keep: bool = False, steered: tuple[str, ...] = ()
) -> Activations:
    """Read all rows of a reading.

    Args:
        reading: What is read.
        keep: Whether an interrupt leaves the prompts whose waves are done.
        steered: What is said of the reading's deltas.

    Raises:
        KeyboardInterrupt: It came before any was, or nothing is to be kept.
    """
    gathering = Gathering(reading)
    done = 0
    try:
        for wave, arrays in reading.waves():
            gathering.add(arrays)
            done = wave.stop
            del arrays  # or they would be there beside the next wave's
    except KeyboardInterrupt:
        if not (keep and done):
            raise
        total = len(reading.prompts)
        reading.session.reporter.warn(f"stopped: kept {done} of {total} prompts")
    array, *others = gathering.arrays()
    return Activations(
        array=array,
        others=dict(zip(reading.choice.points[1:], others, strict=True)),
        **describe_reading(reading.first(done)),
        steered=steered,
    )


def describe_reading(reading: Reading) -> dict[str, Any]:
    """Collect what is said of activations; see ``Description``."""
    session, tokens = reading.session, None
    if reading.choice.describe or max(reading.wanted.num_rows) > 1:
        tokens = describe_tokens(
            session.encoder, reading.token_ids, reading.own, reading.wanted
        )
    return {
        "layers": reading.layers,
        "prompts": tuple(reading.prompts),
        "model": session.files.model,
        "model_revision": session.files.revision,
        "hidden_size": session.spec.hidden_size,
        "points": reading.choice.points,
        "read": reading.choice.tokens.words,
        "tokens": tokens,
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
    prompts, known = check_prompts([text]), check_asked_of([text], [asked])
    encoder = session.encoder
    located = encoder.encode_texts(prompts, known, role=role)
    session.check_tokens(located.token_ids)
    wanted = want_rows(encoder, located, tokens)
    every = describe_tokens(encoder, located.token_ids, located.own)
    is_read = np.zeros(len(every), np.bool_)
    is_read[np.asarray(wanted.positions[0])] = True
    return ShownTokens(
        tokens=every,
        is_read=is_read,
        read=tokens.words,
        chat_template=encoder.chat_template,
    )


def write_activations(
    reading: Reading, output: str | os.PathLike[str], *, store: str = "f32"
) -> Plan:
    """Write rows to a document as they come; memory does not grow with the prompts.

    Args:
        reading: What is read.
        output: Where the document goes; its suffix says which.
        store: ``f32``, or ``f16`` for half the bytes; not for JSON.

    Raises:
        SterError: A weight is refused, or the output cannot be written.
    """
    description = Description(**describe_reading(reading))
    with open_writer(output, description, store=store) as writer:
        for _, arrays in reading.waves():
            writer.write(*arrays)
            del arrays  # or they would be there beside the next wave's
    return reading.plan
