"""Words in, text and exit codes out. ``main`` alone prints an error or exits.

The commands are imported late, so that signals and streams are in order before anything
slow or fragile is loaded.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
import warnings
from collections.abc import Generator, Sequence
from typing import NoReturn

from ster.cli.signals import ignore_signals, stop_on_signals
from ster.cli.streams import open_missing_streams, say, write_stdout
from ster.errors import SterError
from ster.interrupts import Stopped, raise_if_stopped


def main() -> NoReturn:
    """Run the command line and exit."""
    try:
        stop_on_signals()
        open_missing_streams()
        if not sys.warnoptions:
            warnings.simplefilter("ignore")  # libraries'; ster's own go to a reporter
        code = run(sys.argv[1:])
        ignore_signals()
    except Stopped as stopped:
        ignore_signals()
        say(f"{stopped.word}\n")
        code = stopped.exit_code
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command, print its answer or its error, and return the exit code.

    Args:
        arguments: The words after ``ster``.
    """
    try:
        return _run(arguments)
    except SterError as error:
        raise_if_stopped()  # a stop causes errors, which are not worth saying
        from ster.cli.suggestions import suggest  # late: few runs are refused

        error.causes = (*error.causes, *suggest(error))
        say(error_text(error))
        return error.exit_code
    except KeyboardInterrupt:
        say("Interrupted\n")
        return 130
    except Exception as error:  # noqa: BLE001 - a person never sees a traceback
        raise_if_stopped()
        if os.environ.get("STER_TRACEBACK"):
            say(traceback.format_exc())
        say(f"Error: {unexpected(error)}\n")
        return 1


def error_text(error: SterError) -> str:
    """Lay out a sentence and its causes, several of them numbered."""
    return "\n".join(error.lay_out("Error")) + "\n"


def unexpected(error: Exception) -> str:
    """Describe an unforeseen error in one line."""
    if isinstance(error, MemoryError):
        return "out of memory"
    detail = " ".join(f"{type(error).__name__}: {error}".split())
    return f"unexpected {detail} (STER_TRACEBACK=1 shows where)"


def _run(arguments: Sequence[str]) -> int:
    """Run one command; help and version arrive as printed text, answers as a value."""
    import typer

    from ster.cli.app import app
    from ster.cli.completion import VARIABLE, complete
    from ster.cli.panels import WATCHED, may_draw

    command = typer.main.get_command(app)
    asked = os.environ.get(VARIABLE)
    if asked:  # by the script of `ster completion`
        code, words = complete(command, asked)
        write_stdout(words)
        return code
    printed = io.StringIO()
    found = {WATCHED: may_draw()}
    try:
        with (
            contextlib.redirect_stdout(printed),
            command.make_context("ster", list(arguments), obj=found) as context,
        ):
            answer = command.invoke(context)
    except typer.Exit as leave:
        write_stdout(printed.getvalue())
        return leave.exit_code
    except typer.TyperException as error:
        say(_usage_text(error))
        return error.exit_code
    for piece in [answer] if isinstance(answer, str) else answer:
        raise_if_stopped()
        if not write_stdout(piece):  # nobody reads on
            if isinstance(answer, Generator):
                answer.close()  # which a refusal outlives
            break
    return 0


def _usage_text(error: Exception) -> str:
    """Lay out an error of the parser, with the usage of the command it is about."""
    message = getattr(error, "format_message", error.__str__)()
    context = getattr(error, "ctx", None)
    if context is None:
        return f"Error: {message}\n"
    hint = f"Try '{context.command_path} --help' for help."
    return f"Error: {message}\n\n{context.get_usage()}\n{hint}\n"
