"""The trained model that tests share: made once and kept, ``make clean`` removes it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.make_smollm2 import DOWNLOAD_SECONDS, NOT_TO_BE_HAD

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "real_model"


def kept_smollm2(dtype: str) -> Path:
    """Return the checkpoint stored f32 or bf16; make it, whole or not at all.

    Without network there is nothing to make it from, and the test is skipped.
    """
    kept = KEPT / f"smollm2-{dtype}"
    if kept.is_dir():
        return kept
    partial = KEPT / f"smollm2-{dtype}.{os.getpid()}"
    try:
        _run(partial, "--dtype", dtype)
        put_in_place(partial, kept)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return kept


def put_in_place(partial: Path, kept: Path) -> None:
    """Rename what was made, unless another worker's lies there by now."""
    try:
        partial.rename(kept)
    except OSError:
        if not kept.is_dir():
            raise


def _run(*words: str | Path) -> None:
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
