"""Weights that are written to while a run reads them, at the command line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ster.checkpoint.weight_file import WeightFile
from tests.cli.user import ABSENT, User

SHARD = Path("toy/model.safetensors")


def overwrite(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-4000] + bytes(4000))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("change", [overwrite, truncate])
def test_a_run_is_refused_and_leaves_nothing(user: User, monkeypatch, change):
    change_when_mapped(monkeypatch, change)
    ran = user.runs()
    assert (ran.code, ran.out) == (1, "")
    sentence = f"the weight file {SHARD} changed while it was read"
    assert ran.err.startswith(ABSENT)
    assert f"Error: {sentence}\n\nCaused by:\n" in ran.err
    assert sorted(os.listdir()) == ["prompts.json", "toy"]


def change_when_mapped(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    """Let somebody write to the weights as soon as they are mapped."""
    os.utime(SHARD, ns=(0, 0))
    real = WeightFile.read_header

    def read_header(file: WeightFile) -> object:
        header = real(file)
        change(file.path)
        return header

    monkeypatch.setattr(WeightFile, "read_header", read_header)
