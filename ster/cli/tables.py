"""Answers as a person at a terminal sees them: tables that fit, and what they mean.

rich is imported when a table is drawn. Text out of files passes ``one_line``: it could
move the cursor or forge a row.
"""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ster.text import counted, decimal, one_line, printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

    from ster.documents.answers import Answer
    from ster.vectors.selection import Candidate, Evaluation, Selection
    from ster.vectors.steering import SteeringVector
    from ster.vectors.strengths import StrengthChoice

# Candidates that are shown; a document has all.
SHOWN = 10
WIDEST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table.

    Args:
        name: Its heading.
        cells: One for each row.
        is_text: It is read from the left, and may be broken into lines.
        rank: Where there is no room, columns of the highest rank are left out first; 0
            is never.
    """

    name: str
    cells: Sequence[str]
    is_text: bool = False
    rank: int = 0

    @property
    def width(self) -> int:
        """The columns of a terminal that it takes, with what parts it from the next."""
        from rich.cells import cell_len

        longest = max(map(cell_len, [self.name, *self.cells]))
        return 2 + (min(longest, 16) if self.is_text else longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """A table that leaves out what it has no room for.

    Args:
        columns: Of the table.
        marked: The row that stands out, if any.
    """

    columns: Sequence[Column]
    marked: int | None = None

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw it as wide as the terminal allows."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        del console
        columns = fitting(self.columns, options.max_width)
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column in columns:
            table.add_column(
                Text(column.name),
                justify="left" if column.is_text else "right",
                overflow="fold",
            )
        rows = zip(*(column.cells for column in columns), strict=True)
        for number, row in enumerate(rows):
            style = "bold" if number == self.marked else ""
            table.add_row(*(Text(cell, style=style) for cell in row))
        yield table


def fitting(columns: Sequence[Column], room: int) -> list[Column]:
    """Leave out columns of high rank until the others have room."""
    kept = [*columns]
    while sum(each.width for each in kept) > room and any(each.rank for each in kept):
        kept.remove(max(kept, key=lambda each: each.rank))
    return kept


def draw(parts: Iterable[RenderableType]) -> str:
    """Draw lines and tables one below the other, for the terminal that stdout is."""
    from rich.console import Console

    width = min(max(shutil.get_terminal_size().columns, 20), WIDEST)
    file = _Page(sys.stdout.encoding or "ascii")
    console = Console(
        file=file,
        force_terminal=True,
        highlight=False,
        markup=False,
        emoji=False,
        width=width,
    )
    for part in parts:
        console.print(part)
    return file.getvalue()


class _Page(io.StringIO):
    """Text that is to be written in an encoding; rich draws in ASCII if it must."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


def summary(vector: SteeringVector) -> Iterator[RenderableType]:
    """Show what an artifact holds."""
    yield from _title(vector)
    layers = vector.layers
    yield Columns(
        columns=[
            Column(name="layer", cells=[str(layer) for layer in layers]),
            Column(name="accuracy", cells=[_share(a) for a in vector.train_accuracy]),
            Column(name="margin", cells=[_number(m) for m in vector.train_margin]),
            Column(name="length", cells=[*map(_number, vector.norms())], rank=1),
        ]
    )
    yield from _facts(vector.metadata)
    yield "accuracy and margin on the pairs that it was fitted on"


def selection(found: Selection) -> Iterator[RenderableType]:
    """Show the best candidates, beside chance, and whether the choice means much."""
    yield from _title(found.vector)
    ranked = sorted(found.candidates, key=lambda c: (-c.accuracy, -c.margin))
    shown = ranked[:SHOWN]
    yield Columns(columns=_candidate_columns(shown), marked=shown.index(found.best))
    if len(ranked) > SHOWN:
        yield f"and {len(ranked) - SHOWN} more, which --json prints"
    held = counted(found.num_holdout, "held-out pair")
    yield (
        f"* chosen over {len(ranked)} candidates on {held}, then fitted again on "
        f"all {found.num_fit + found.num_holdout} pairs"
    )
    tied = sum(each.accuracy == found.best.accuracy for each in ranked) - 1
    if tied:
        have = "has" if tied == 1 else "have"
        yield (
            f"{counted(tied, 'other')} {have} the same accuracy: the margin decided "
            "between them"
        )
    chance = found.random_best
    yield (
        f"random directions at their best layer: accuracy {_share(chance.mean)} on "
        f"average, one in twenty above {_share(chance.percentile_95)}"
    )
    for sentence in doubts(found):
        yield _warning(sentence)


def doubts(found: Selection) -> Iterator[str]:
    """Say where the held-out pairs are too few to tell candidates apart."""
    low, pairs = found.best.interval[0], counted(found.num_holdout, "held-out pair")
    is_few = "is too few" if found.num_holdout == 1 else "are too few"
    if found.random_best.percentile_95 >= low:
        yield (
            f"{pairs} {is_few} to tell the best candidate from a random direction "
            "at its best layer: its interval reaches down to them"
        )
    others = [each for each in found.candidates if each is not found.best]
    within = sum(each.accuracy >= low for each in others)
    if within > len(others) / 2:
        yield (
            f"{pairs} {is_few} to tell candidates apart: {within} of the other "
            f"{len(others)} lie within the interval of the best"
        )


def evaluation(found: Evaluation) -> Iterator[RenderableType]:
    """Show how each layer orders pairs, and what steering does to them."""
    yield from _title(found.vector)
    layers = found.layers
    random = [_share(each.random.percentile_95) for each in layers]
    norms = [_number(each.residual_norm) for each in layers]
    intervals = [_interval(each.interval) for each in layers]
    yield Columns(
        columns=[
            Column(name="layer", cells=[str(each.layer) for each in layers]),
            Column(name="accuracy", cells=[_share(each.accuracy) for each in layers]),
            Column(name="95 % interval", cells=intervals, rank=1),
            Column(name="random", cells=random, rank=2),
            Column(name="margin", cells=[_number(e.margin) for e in layers], rank=3),
            Column(name="stream's length", cells=norms, rank=4),
        ]
    )
    yield f"on {counted(found.num_pairs, 'pair')}; {RANDOM}"
    if found.strength is not None:
        yield ""
        yield from strengths(found.strength)


def strengths(found: StrengthChoice) -> Iterator[RenderableType]:
    """Show what steering at each strength does to the sides of pairs."""
    rows = found.candidates
    yield Columns(
        columns=[
            Column(name="", cells=["*" if each.selected else " " for each in rows]),
            Column(
                name="strength",
                cells=[each.strength_word or _number(each.strength) for each in rows],
            ),
            Column(name="ordered", cells=[_share(each.ordered) for each in rows]),
            Column(name="mean shift", cells=[f"{e.mean_shift:+.4f}" for e in rows]),
        ],
        marked=next(i for i, each in enumerate(rows) if each.selected),
    )
    skipped = found.num_pairs - found.num_scored
    long = f", {skipped} too long" if skipped else ""
    yield f"* chosen; {counted(found.num_scored, 'pair')} scored{long}"
    yield "ordered: share of pairs whose positive side rose more; mean shift in nats"
    tenth = _number(found.residual_norm / 10)
    yield f"0.1n is {tenth} on average over the layers, a tenth of the stream's length"


def answers(found: Iterable[Answer]) -> Iterator[RenderableType]:
    """Show the answers at several strengths, whose lines are joined."""
    rows = [*found]
    texts = [printable(" ".join(each.text.split())) for each in rows]
    yield Columns(
        columns=[
            Column(name="strength", cells=[*map(spelled, rows)]),
            Column(name="answer", cells=texts, is_text=True),
        ]
    )


def families(listed: Sequence[Mapping[str, object]]) -> Iterator[RenderableType]:
    """Show the families of models."""

    def cells(key: str) -> list[str]:
        return ["" if each[key] is None else str(each[key]) for each in listed]

    yield Columns(
        columns=[
            Column(name="family", cells=cells("family"), is_text=True),
            Column(name="models", cells=cells("models"), is_text=True, rank=2),
            Column(name="through", cells=cells("through"), is_text=True),
            Column(name="largest error", cells=cells("largest_error"), rank=1),
        ]
    )
    yield ""
    checks = {str(each["checked"]): str(each["through"]) for each in listed}
    for checked, through in checks.items():
        yield _plain(f"{through}: checked {checked}")


RANDOM = "random: what one random direction in twenty exceeds at that layer"


def _candidate_columns(shown: Sequence[Candidate]) -> list[Column]:
    random = [_share(each.random.percentile_95) for each in shown]
    sizes = [each.effect_size for each in shown]
    effects = ["-" if size is None else f"{size:.2f}" for size in sizes]
    intervals = [_interval(each.interval) for each in shown]
    return [
        Column(name="", cells=["*" if each.selected else " " for each in shown]),
        Column(name="layer", cells=[str(each.layer) for each in shown]),
        Column(name="method", cells=[each.method for each in shown], is_text=True),
        Column(name="accuracy", cells=[_share(each.accuracy) for each in shown]),
        Column(name="95 % interval", cells=intervals, rank=1),
        Column(name="random", cells=random, rank=2),
        Column(name="effect size", cells=effects, rank=4),
        Column(name="margin", cells=[_number(each.margin) for each in shown], rank=3),
    ]


def _title(vector: SteeringVector) -> Iterator[RenderableType]:
    from rich.text import Text

    layers = counted(len(vector.layers), "layer")
    yield Text(one_line(vector.trait_name), style="bold")
    yield _plain(
        f"{one_line(vector.method)}, {layers} of {one_line(vector.model)}, "
        f"hidden size {vector.hidden_size}"
    )
    precision, template = vector.precision, vector.chat_template
    if precision is not None or template is not None:
        yield _plain(
            f"precision {one_line(precision or '-')}, chat template "
            f"{one_line(template or '-')}"
        )
    yield ""


def _facts(metadata: Mapping[str, str]) -> Iterator[RenderableType]:
    for name, value in metadata.items():
        yield _plain(f"{one_line(name)}: {one_line(value)}")


def _plain(line: str) -> RenderableType:
    from rich.text import Text

    return Text(line, overflow="fold")


def _warning(sentence: str) -> RenderableType:
    from rich.text import Text

    return Text(f"warning: {sentence}", style="yellow")


def spelled(answer: Answer) -> str:
    """Write an answer's strength as it was asked for."""
    return answer.strength_word or decimal(answer.strength or 0.0)


def _share(value: float) -> str:
    return f"{value:.3f}"


def _interval(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.2f} to {bounds[1]:.2f}"


def _number(value: float) -> str:
    """Write a number in few digits, whatever its size."""
    return f"{value:.4g}"
