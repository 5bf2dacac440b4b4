"""Write the reference of commands and of Python: ``python -m assets.reference``.

The commands' pages are what ``--help`` prints; the names' are their signatures and
docstrings. A test says when they are stale.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

import typer

from assets.docstrings import describe
from ster.cli import run
from ster.cli.app import app

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
COLUMNS = "80"
MADE = "<!-- made by: make reference -->\n\n"


def command_lines() -> Iterator[tuple[str, ...]]:
    """Yield the words of every command and group, the root first."""

    def walk(words: tuple[str, ...], command: object) -> Iterator[tuple[str, ...]]:
        yield words
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk((*words, name), inner)

    yield from walk((), typer.main.get_command(app))


def help_of(words: tuple[str, ...]) -> str:
    """Return what ``ster ... --help`` prints in a window of 80 columns."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = COLUMNS
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(printed):
            run([*words, "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    printed.seek(0)
    return printed.read().rstrip()


def commands_page() -> str:
    """Make the page of the commands."""
    text = f"{MADE}# Commands\n\n"
    text += "What `--help` prints, for every command.\n"
    for words in command_lines():
        title = " ".join(("ster", *words))
        text += f"\n## {title}\n\n```text\n{help_of(words)}\n```\n"
    return text


def python_page() -> str:
    """Make the page of the public names."""
    return f"{MADE}# Python\n\n{describe()}"


PAGES = {"commands.md": commands_page, "python.md": python_page}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
