"""The help page: flags under headings, in boxes where a person reads it.

Drawn without rich, which takes longer to import than all the rest of a help page. A
pipe gets the same words in the same order, without boxes.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from typer._click.core import Context, Parameter
from typer._click.formatting import HelpFormatter

MODEL, FILES, STEERING = "Model", "Input and output", "Steering"
WRITING, MEASURING, RUN = "Writing", "Measuring", "This run"
# By flag, the heading that it stands under.
PANELS = {
    **dict.fromkeys(
        ("--model", "--revision", "--device", "--precision"),
        MODEL,
    ),
    **dict.fromkeys(("--chat-template", "--template-arg"), MODEL),
    **dict.fromkeys(("--input", "--output", "--pairs", "--text"), FILES),
    **dict.fromkeys(("--prompt", "--prompts", "--system", "--store"), FILES),
    **dict.fromkeys(("--layer", "--layers", "--tokens", "--points"), FILES),
    **dict.fromkeys(("--vector", "--strength", "--how", "--where"), STEERING),
    **dict.fromkeys(("--below", "--keep-norm", "--at-layers"), STEERING),
    **dict.fromkeys(("--max-new-tokens", "--temperature", "--top-p"), WRITING),
    **dict.fromkeys(("--label", "--positive", "--role"), FILES),
    **dict.fromkeys(("--method", "--holdout", "--by", "--write-anyway"), MEASURING),
    **dict.fromkeys(("--strengths", "--batch-size", "--max-sequence"), MEASURING),
    **dict.fromkeys(("--clusters", "--components", "--sizes"), MEASURING),
    **dict.fromkeys(("--seed", "--memory", "--verbose", "--help"), RUN),
}
# A narrower terminal has no room for boxes.
NARROWEST, WIDEST = 60, 100
# What no help page is narrower than, whatever a terminal says of itself.
LEAST = 20
WATCHED = "ster.watched"


def write_panels(
    params: Sequence[Parameter], context: Context, formatter: HelpFormatter
) -> None:
    """Write the flags and arguments of a command, heading by heading.

    Args:
        params: Those of the command.
        context: The command's.
        formatter: Where they go.
    """
    panels: dict[str, list[tuple[str, str]]] = {}
    for param in params:
        record = param.get_help_record(context)
        if record is None:
            continue
        is_argument = param.param_type_name == "argument"
        heading = "Arguments" if is_argument else _heading(param.opts)
        panels.setdefault(heading, []).append(record)
    last = panels.pop(RUN, None)
    if len(panels) == 0 and last:  # a command with none but its help
        panels, last = {"Options": last}, None
    for heading, records in [*panels.items(), *([(RUN, last)] if last else [])]:
        with formatter.section(heading):
            formatter.write_dl(records)


def _heading(flags: Sequence[str]) -> str:
    return next((PANELS[flag] for flag in flags if flag in PANELS), "Options")


def open_formatter(*, watched: bool) -> HelpFormatter:
    """Give the formatter that suits stdout.

    Args:
        watched: Whether stdout is a terminal that shows boxes.
    """
    columns = shutil.get_terminal_size().columns
    if not watched:
        return HelpFormatter()
    if columns < NARROWEST:
        return NarrowFormatter(width=max(columns, LEAST))
    return BoxFormatter(width=min(columns, WIDEST))


def may_draw() -> bool:
    """Tell whether stdout is a terminal whose encoding has what boxes are made of."""
    try:
        "╭─╮│╰╯".encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return sys.stdout.isatty()


class NarrowFormatter(HelpFormatter):
    """Puts what a flag does below it, for there is no room beside it."""

    def write_dl(
        self,
        rows: Sequence[tuple[str, str]],
        col_max: int = 2,
        col_spacing: int = 2,
    ) -> None:
        """Write names and what they are, one below the other."""
        super().write_dl(rows, min(col_max, 2), col_spacing)


class BoxFormatter(HelpFormatter):
    """Draws a box around each section, as wide as the terminal.

    Args:
        width: Columns.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width=width)
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") in (None, "dumb")
        self._dim, self._bold, self._end = (
            ("", "", "") if plain else ("\x1b[2m", "\x1b[1m", "\x1b[0m")
        )

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Collect what a section has, then draw it in its box."""
        outside, width = self.buffer, self.width
        self.buffer, self.width = [], width - 4
        try:
            yield
        finally:
            lines = "".join(self.buffer).splitlines()
            self.buffer, self.width = outside, width
        self.write_paragraph()
        self.write("".join(f"{line}\n" for line in self._box(name, lines)))

    def _box(self, name: str, lines: Sequence[str]) -> Iterator[str]:
        dim, bold, end = self._dim, self._bold, self._end
        rule = "─" * (self.width - len(name) - 5)
        yield f"{dim}╭─{end} {bold}{name}{end} {dim}{rule}╮{end}"
        for line in lines:
            yield f"{dim}│{end} {line:<{self.width - 4}} {dim}│{end}"
        yield f"{dim}╰{'─' * (self.width - 2)}╯{end}"
