"""Every block of the page on strengths runs as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from ster.cli import run

PAGE = Path(__file__).resolve().parents[1] / "docs" / "strengths.md"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_blocks_run_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert {language for language, _ in blocks} == {"python", "sh"}
    names: dict[str, Any] = {}
    for language, block in blocks:
        if language == "python":
            exec(compile(block, PAGE, "exec"), names)
            continue
        for line in block.splitlines():
            program, *words = shlex.split(line)
            assert program == "ster"
            assert run(words) == 0, line
