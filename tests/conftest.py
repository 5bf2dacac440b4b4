"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of golden checkpoints and data that lies beside the project."""
    folder = Path(os.environ.get("STER_SHARED", SHARED))
    if not folder.is_dir():
        pytest.skip("the shared golden checkpoints are not here")
    return folder
