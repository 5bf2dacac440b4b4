"""Prompts on the command line: a file in any form, standard input, or words."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ster.cli.options import take_text
from ster.cli.streams import say

if TYPE_CHECKING:
    from ster.documents.prompt_sets.value import PromptSet

FORMATS = (
    ".json, .jsonl, .csv, .tsv or .txt, or - for standard input; fields and columns "
    "beside `prompt` are labels"
)
_STANDARD_INPUT = "-"


def take_prompts(words: list[str] | None) -> list[str]:
    """Take every ``--prompt`` as text."""
    return [take_text("--prompt", word) for word in words or []]


def take_output(path: str | None) -> str | None:
    """Take the path of an output; ``-`` is standard output."""
    return "/dev/stdout" if path == "-" else path


def input_file(path: str | None) -> list[str]:
    """Name the file that a run reads its prompts from, if there is one."""
    if path is None:
        return []
    return ["/dev/stdin" if path == _STANDARD_INPUT else path]


def read_prompts(path: str | None, words: list[str] | None) -> PromptSet:
    """Read the prompts of a file, or take those that stand on the line.

    Raises:
        SterError: They cannot be read, or one is refused.
    """
    # Late, so that `ster --help` does not wait for what reads documents.
    from ster.documents.prompt_sets.files import read_prompt_set
    from ster.documents.prompt_sets.value import PromptSet

    if path is None:
        return PromptSet.of(words or [])
    if path == _STANDARD_INPUT and sys.stdin.isatty():
        say("reading prompts from this terminal until Ctrl-D\n")
    return read_prompt_set(path)
