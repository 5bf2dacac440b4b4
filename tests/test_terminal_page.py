"""Every block of the page on the terminal runs as it stands, and its claims hold."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from ster.cli.conversation import COMMANDS
from ster.cli.options import LETTERS
from tests.processes import finished

PAGE = Path(__file__).resolve().parents[1] / "docs" / "terminal.md"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_blocks_run_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    tools, place = tmp_path / "tools", tmp_path / "place"
    tools.mkdir()
    place.mkdir()
    (tools / "ster").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ster "$@"\n')
    (tools / "ster").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert {language for language, _ in blocks} == {"python", "sh"}
    for language, program in (("sh", [bash, "-euo", "pipefail"]), ("python", None)):
        text = "\n".join(block for each, block in blocks if each == language)
        command = [*(program or [sys.executable]), "-c", text]
        done = finished(command, cwd=place)
        assert done.returncode == 0, done.stderr.decode()
    names = {path.name for path in place.iterdir()}
    assert {"calm.json", "best.json", "activations.json", "calm-summary.json"} <= names


def test_every_letter_and_command_stands_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    for flag, letter in LETTERS.items():
        assert re.search(rf"^\|.*`{flag}`.*\| `{letter}` \|$", page, re.MULTILINE)
    assert all(f"| `/{name}" in page for name in COMMANDS)
