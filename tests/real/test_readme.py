"""The table of answers in the README is what its command prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from ster.cli import run

ROOT = Path(__file__).resolve().parents[2]
PAIRS = str(ROOT / "assets" / "pairs_happy.json")


def test_the_table_of_strengths_is_what_the_command_prints(
    smollm2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    vector = str(tmp_path / "happy.json")
    model = ["--model", str(smollm2)]
    line = ["vector", "train", *model, "--pairs", PAIRS, "--output", vector]
    assert run([*line, "--layers", "10..20"]) == 0
    capsys.readouterr()
    line = ["generate", *model, "--prompt", "How was your day?", "--vector", vector]
    assert run([*line, "--strengths", "-8,-4,0,4,8", "--max-new-tokens", "40"]) == 0
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"\n\n{capsys.readouterr().out}\n" in readme
