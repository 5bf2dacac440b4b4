"""The pages of the documentation: their blocks run as a reader would run them.

A page is run from top to bottom in a folder of its own, where ``assets`` lies and, for
a page that speaks of it, the trained model. ``sh`` blocks run with the ``ster`` of this
environment, all ``python`` blocks of a page in one namespace. What stands in a ``text``
block after one, or after ``<!-- prints -->``, is what it prints; ``...`` stands for
anything. A comment before a block says what is not plain: ``<!-- not run: why -->``, or
``<!-- refused -->`` for a line that ends with exit code 1 and prints on stderr.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ster import SterWarning
from tests.processes import finished

ROOT = Path(__file__).resolve().parents[1]
TRAINED = "HuggingFaceTB/SmolLM2-135M-Instruct"
BLOCK = re.compile(
    r"""
    (?:^<!--\ (?P<note>not\ run:[^\n]*|refused)\ -->\n)?
    ^```(?P<language>sh|python)\n(?P<code>.*?)^```\n
    (?:\n+(?:```text\n(?P<text>.*?)^```$|<!--\ prints\ -->\n\n(?P<table>.*?)(?=\n\n)))?
    """,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of code, and what it is to print if the page says so."""

    where: str
    line: int
    language: str
    code: str
    note: str
    expected: str | None


def pages() -> list[Path]:
    """List the README and the pages that people wrote; programs wrote the others."""
    written = (ROOT / "docs").rglob("*.md")
    kept = [each for each in written if "reference" not in each.parts]
    return [ROOT / "README.md", *sorted(kept)]


def name_of(page: Path) -> str:
    """Name a page as its readers do."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """Find the blocks of code of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            where=name_of(page),
            line=text.count("\n", 0, found.start("code")),
            language=found["language"],
            code=found["code"],
            note=found["note"] or "",
            expected=found["text"] or (found["table"] and f"{found['table']}\n"),
        )
        for found in BLOCK.finditer(text)
    ]


def needs_trained_model(page: Path) -> bool:
    """Tell whether a block that runs names the trained model."""
    return any(TRAINED in each.code and not_skipped(each) for each in blocks(page))


def not_skipped(block: Block) -> bool:
    """Tell whether a block runs."""
    return not block.note.startswith("not run:")


def run_page(page: Path) -> dict[str, Any]:
    """Run a page's blocks in the working directory; return the names of its Python."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in filter(not_skipped, blocks(page)):
        if block.language == "sh":
            printed = run_shell(block)
        else:
            printed = run_python(block, namespace)
        if block.expected is not None:
            check(block, printed)
    return namespace


def run_shell(block: Block) -> str:
    """Run shell lines; return what they print, a refusal's sentence if it is one."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
        "MPLBACKEND": "Agg",
    }
    ran = finished(["bash", "-euc", block.code], env=environment)
    refused = block.note == "refused"
    said = ran.stderr.decode()
    assert ran.returncode == int(refused), f"{block.where}:{block.line}: {said}"
    return said if refused else ran.stdout.decode()


def run_python(block: Block, namespace: dict[str, Any]) -> str:
    """Run statements, with the page's own line numbers in what fails."""
    printed = io.StringIO()
    code = compile("\n" * block.line + block.code, block.where, "exec")
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        # A page may do what ster warns of, and leave files to the interpreter.
        warnings.simplefilter("ignore", SterWarning)
        warnings.simplefilter("ignore", ResourceWarning)
        exec(code, namespace)
    return printed.getvalue()


def check(block: Block, printed: str) -> None:
    """Compare what a block printed with what the page says."""
    expected = block.expected or ""
    same = doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)
    assert same, f"{block.where}:{block.line} printed\n{printed}\nnot\n{expected}"
