"""Reading activations into arrays and documents."""

from __future__ import annotations

import os

import numpy as np

from ster.documents.activations.artifact import ActivationWriter
from ster.documents.activations.value import Activations
from ster.documents.prompt_sets.value import Prompts
from ster.runs.plan import Plan
from ster.runs.reading import Reading, plan_reading
from ster.runs.session import Session


def collect(reading: Reading) -> Activations:
    """Read all rows of a reading."""
    session = reading.session
    return Activations(
        array=np.concatenate([rows for _, rows in reading.waves()]),
        layers=reading.layers,
        prompts=tuple(reading.prompts),
        model=session.files.model,
        model_revision=session.files.revision,
        hidden_size=session.spec.hidden_size,
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
