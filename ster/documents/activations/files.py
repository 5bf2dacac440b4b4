"""Documents of activations by suffix: ``.json``, ``.safetensors`` and ``.npz``."""

from __future__ import annotations

import os

from ster.documents.activations.artifact import ActivationWriter, read_artifact
from ster.documents.activations.value import Activations


def save_activations(
    activations: Activations, path: str | os.PathLike[str], *, store: str = "f32"
) -> None:
    """Write a document, whole or not at all; see ``Activations.save``."""
    del store
    with ActivationWriter(
        path,
        model=activations.model,
        model_revision=activations.model_revision,
        hidden_size=activations.hidden_size,
    ) as writer:
        for prompt, rows in zip(activations.prompts, activations.array, strict=True):
            writer.write(prompt, activations.layers, rows)


def load_activations(path: str | os.PathLike[str]) -> Activations:
    """Read a document of activations; see ``Activations.load``."""
    return read_artifact(path)
