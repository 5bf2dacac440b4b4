"""The page on the terminal names what there is; its blocks run with those of others."""

from __future__ import annotations

import re
from pathlib import Path

from ster.cli.conversation import COMMANDS
from ster.cli.options import LETTERS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "terminal.md"


def test_every_letter_and_command_stands_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    for flag, letter in LETTERS.items():
        assert re.search(rf"^\|.*`{flag}`.*\| `{letter}` \|$", page, re.MULTILINE)
    assert all(f"| `/{name}" in page for name in COMMANDS)
