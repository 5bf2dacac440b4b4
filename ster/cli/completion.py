"""``ster completion``: what completes ster's words in a shell, and how it is asked.

The script calls ster with the variable ``_STER_COMPLETE`` and the line typed so far.
"""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, Annotated

import typer

from ster.cli.options import offer
from ster.errors import UsageError
from ster.text import quoted

if TYPE_CHECKING:
    from typer._click.core import Command

VARIABLE = "_STER_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


def _check_shell(word: str) -> str:
    """Refuse a shell that there is no script for."""
    if word not in SHELLS:
        raise UsageError(
            f"unknown shell {quoted(word)}; expected bash, zsh or fish",
            field="SHELL",
            found=word,
            expected=SHELLS,
        )
    return word


Shell = Annotated[
    str,
    typer.Argument(
        metavar="SHELL",
        callback=_check_shell,
        autocompletion=offer(*SHELLS),
        help="One of bash, zsh and fish.",
    ),
]


def completion(*, shell: Shell) -> str:
    """Print a script that completes ster's commands, flags and their words.

    For bash, `eval "$(ster completion bash)"` in ~/.bashrc; for zsh the same with zsh,
    after compinit, in ~/.zshrc; for fish `ster completion fish | source` in its config.
    """
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="ster", complete_var=VARIABLE, shell=shell)
    return f"{script}\n"


def complete(command: Command, asked: str) -> tuple[int, str]:
    """Answer the script: what may follow the words so far.

    Args:
        command: The commands.
        asked: The variable's value, such as ``complete_bash``.

    Returns:
        The exit code, which fish reads, and what is printed.
    """
    from typer import _completion_classes
    from typer.completion import shell_complete

    _completion_classes.completion_init()
    # Else every word of help is put through rich, which takes long to load.
    _completion_classes._sanitize_help_text = _first_sentence

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            code = shell_complete(command, {}, "ster", VARIABLE, asked)
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else 1
    return code, printed.getvalue()


def _first_sentence(text: str) -> str:
    return text.partition(". ")[0].removesuffix(".")
