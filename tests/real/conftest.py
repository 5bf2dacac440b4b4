"""SmolLM2-135M, a trained model with a real tokenizer and template, as a checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# Made once and kept: `make clean` removes it.
KEPT = Path(__file__).resolve().parents[2] / "build" / "real_model"
MAKE_SECONDS = 240


@pytest.fixture(scope="session")
def make_smollm2(shared: Path) -> Callable[[str], Path]:
    """Return what makes the checkpoint, stored f32 or bf16, whole or not at all."""

    def make(dtype: str) -> Path:
        kept = KEPT / f"smollm2-{dtype}"
        if kept.is_dir():
            return kept
        if find_spec("gguf") is None:
            pytest.skip("the package gguf, which reads SmolLM2's file, is not here")
        partial = KEPT / f"smollm2-{dtype}.{os.getpid()}"
        script = shared / "real_model" / "make_smollm2.py"
        try:
            _run(script, partial, "--dtype", dtype)
            partial.rename(kept)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return kept

    return make


def _run(script: Path, *words: str | Path) -> None:
    """Run the script, which downloads the weights when it is first used."""
    made = subprocess.run(
        [sys.executable, script, *words],
        capture_output=True,
        text=True,
        timeout=MAKE_SECONDS,
        check=False,
    )
    if made.returncode:
        last = made.stderr.strip().splitlines()[-1:]
        pytest.skip(f"SmolLM2 is not to be had: {' '.join(last)}")


@pytest.fixture(scope="session")
def smollm2(make_smollm2: Callable[[str], Path]) -> Path:
    """Return the checkpoint as the golden file was made from it: stored f32."""
    return make_smollm2("f32")


@pytest.fixture(scope="session")
def golden(shared: Path) -> dict[str, Any]:
    """Return what transformers gives for SmolLM2, templated (auto) and raw (off)."""
    path = shared / "golden" / "smollm2" / "expected.json"
    golden: dict[str, Any] = json.loads(path.read_bytes())
    return golden
