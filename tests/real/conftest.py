"""SmolLM2-135M, a trained model with a real tokenizer and template, as a checkpoint."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.real import golden as golden_file
from tests.real.make_smollm2 import DOWNLOAD_SECONDS, NOT_TO_BE_HAD

ROOT = Path(__file__).resolve().parents[2]
# Made once and kept: `make clean` removes it.
KEPT = ROOT / "build" / "real_model"


@pytest.fixture(scope="session")
def make_smollm2() -> Callable[[str], Path]:
    """Return what makes the checkpoint, stored f32 or bf16, whole or not at all."""

    def make(dtype: str) -> Path:
        kept = KEPT / f"smollm2-{dtype}"
        if kept.is_dir():
            return kept
        partial = KEPT / f"smollm2-{dtype}.{os.getpid()}"
        try:
            _run(partial, "--dtype", dtype)
            partial.rename(kept)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return kept

    return make


def _run(*words: str | Path) -> None:
    """Run the maker; without network there is nothing to make it from."""
    made = subprocess.run(
        [sys.executable, "-m", "tests.real.make_smollm2", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_SECONDS + 40,
        check=False,
    )
    if made.returncode == NOT_TO_BE_HAD:
        pytest.skip(made.stderr.strip())
    assert not made.returncode, made.stderr


@pytest.fixture(scope="session")
def smollm2(make_smollm2: Callable[[str], Path]) -> Path:
    """Return the checkpoint as the golden file was made from it: stored f32."""
    return make_smollm2("f32")


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    """Return what transformers gives for SmolLM2, templated (auto) and raw (off)."""
    return golden_file.read()
