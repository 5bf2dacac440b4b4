"""What the page about prompts shows, runs and prints what it says."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from ster import PromptSet
from tests.processes import finished

PAGE = Path(__file__).resolve().parents[1] / "docs" / "inputs.md"


def blocks(language: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def test_the_page_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    # The command of this very environment.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for block in blocks("sh"):
        ran = finished(["sh", "-euc", block])
        assert ran.returncode == 0, ran.stderr.decode()
    written = {
        name: [
            record["prompt"]
            for record in json.loads(Path(name).read_bytes())["records"]
        ]
        for name in ("two.json", "activations.json", "piped.json")
    }
    two = ["the sea is calm .", "thunder rolls"]
    table = [two[0], "describe\nthe evening lake .", two[1]]
    assert written == {"two.json": two, "activations.json": table, "piped.json": two}
    assert PromptSet.load("chats.jsonl").labels == {"id": (1, 2)}
    (script,), (printed,) = blocks("python"), blocks("text")
    ran = finished([sys.executable, "-c", script])
    assert (ran.returncode, ran.stdout.decode()) == (0, printed)
