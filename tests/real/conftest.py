"""SmolLM2-135M, a trained model with a real tokenizer and template, as a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.real import golden as golden_file
from tests.real.kept import kept_smollm2


@pytest.fixture(scope="session")
def make_smollm2() -> Callable[[str], Path]:
    """Return what makes the checkpoint, stored f32 or bf16, whole or not at all."""
    return kept_smollm2


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Return the checkpoint as the golden file was made from it: stored f32."""
    return kept_smollm2("f32")


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    """Return what transformers gives for SmolLM2, templated (auto) and raw (off)."""
    return golden_file.read()
