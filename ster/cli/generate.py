"""``ster generate``: text from a prompt, or answers to a set of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from ster.cli.answer import render, render_beside
from ster.cli.applying import (
    ApplyingFlags,
    intervene,
    take_applying,
    with_applying_flags,
)
from ster.cli.inputs import FORMATS, input_file, read_prompts, take_output
from ster.cli.model import ModelFlags, check_output, with_model_flags
from ster.cli.options import Text, take_text
from ster.cli.progress import Seldom
from ster.cli.steering import (
    load_vectors,
    parse_several_strengths,
    split_vector,
)
from ster.cli.streams import say
from ster.cli.tables.answers import draw_answers
from ster.cli.tables.drawing import draw
from ster.cli.writing import (
    MaxNewTokens,
    Seed,
    StrengthOption,
    System,
    Temperature,
    TopP,
    Vectors,
    check_drawn,
    read_system,
)
from ster.errors import UsageError
from ster.text import counted, one_line, printable

if TYPE_CHECKING:
    from ster.documents.answers import Answer
    from ster.documents.prompt_sets.value import PromptSet
    from ster.runs.sampling import Answering
    from ster.runtime import Runtime
    from ster.vectors.interventions import Intervention
    from ster.vectors.strengths import Strength


def _check_strengths(words: str | None) -> str | None:
    """Refuse what is no list of strengths."""
    if words is not None:
        parse_several_strengths(words)
    return words


def _take_prompt(words: str | None) -> str | None:
    """Take the prompt as text."""
    return None if words is None else take_text("--prompt", words)


Prompt = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        metavar="<TEXT>",
        callback=_take_prompt,
        help="The prompt to answer.",
    ),
]
Prompts = Annotated[
    str | None,
    typer.Option(
        "--prompts",
        metavar="<FILE>",
        help=f"Prompts to answer instead, into --output: {FORMATS}.",
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        metavar="<FILE>",
        callback=take_output,
        help="Where the answers to --prompts go, as JSON, - for standard output. A run "
        "that ends early keeps the answers so far in <FILE>.partial.",
    ),
]
StrengthsOption = Annotated[
    str | None,
    typer.Option(
        "--strengths",
        metavar="<S,S,...>",
        callback=_check_strengths,
        help="Answer at each of these strengths, such as -0.1n,0,0.1n, all at once: a "
        "table, or with --prompts a document.",
    ),
]


@with_model_flags
@with_applying_flags
def generate(
    *,
    context: typer.Context,
    prompt: Prompt = None,
    prompts_path: Prompts = None,
    output_path: Output = None,
    vector_words: Vectors = None,
    strength: StrengthOption = "1.0",
    strengths: StrengthsOption = None,
    applied: ApplyingFlags,
    system_path: System = None,
    max_new_tokens: MaxNewTokens = 128,
    temperature: Temperature = 0.0,
    top_p: TopP = None,
    seed: Seed = 42,
    flags: ModelFlags,
    text: Text = None,
) -> Iterator[str]:
    """Answer a prompt, with a steering vector added to the residual stream or without.

    Prints the answer as it grows, with --strengths a table of answers, or with
    --prompts the path of the answers' document.
    """
    from ster.runs.sampling import Answering  # late: --help needs no arrays

    how = Answering.of(
        max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p, seed=seed
    )
    check_drawn(how)
    check_question(prompt, prompts_path, output_path)
    vectors = vector_words or []
    check_given(context, strengths, vectors)
    times = parse_several_strengths(strength if strengths is None else strengths)
    applying = take_applying(applied, vectors, times)
    flags.check_device()
    inputs = [path for path, _ in map(split_vector, vectors)]
    inputs += [system_path] if system_path else []
    if output_path is not None:
        check_output(output_path, input_file(prompts_path) + inputs)
    prompts = read_prompts(prompts_path, [prompt or ""])
    how = replace(how, system=read_system(system_path))
    prompts.conversations_to_answer(how.system)  # refuses before the model is loaded
    steer = intervene(load_vectors(vectors), applying)
    asked = Asked(prompts=prompts, steer=steer, strengths=times, how=how)
    return answer(flags, asked, output_path, is_table=strengths is not None, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be answered.

    Args:
        prompts: Each is answered at every strength.
        steer: What is done to the stream: vectors, each with its strength, and how
            they are applied.
        strengths: What all strengths are multiplied by.
        how: How prompts are answered.
    """

    prompts: PromptSet
    steer: Sequence[Intervention]
    strengths: Sequence[Strength]
    how: Answering

    def answers(self, runtime: Runtime) -> Iterator[Answer]:
        """Answer all; refuse at once what needs no weights."""
        return runtime.answers(
            self.prompts,
            steer=self.steer,
            strengths=self.strengths if self.steer else None,
            answering=self.how,
        )


def answer(
    flags: ModelFlags,
    asked: Asked,
    output_path: str | None,
    *,
    is_table: bool,
    text: bool | None,
) -> Iterator[str]:
    """Load the model and yield what is printed, while it is made."""
    if is_table and output_path is None:
        with flags.open() as runtime:
            answers = [*asked.answers(runtime)]
        # When the display of progress has ended, which would stand in its way.
        yield from write_table(answers, text=text)
        return
    if output_path is not None:
        with flags.open(output_path=output_path) as runtime:
            write_answers(runtime, asked, output_path)
        yield render_beside(output_path, output_path, text=text)
        return
    with flags.open() as runtime:
        (strength,) = asked.strengths
        steer = [each.at(strength) for each in asked.steer]
        pieces = runtime.stream(
            asked.prompts.prompts[0], steer=steer, answering=asked.how
        )
        # A pipe gets the text as it is. On a terminal what would control it is escaped,
        # and a newline gives the shell's prompt a line of its own.
        if not sys.stdout.isatty():
            yield from pieces
            return
        yield from map(printable, pieces)
        yield "\n"


def write_table(answers: Iterable[Answer], *, text: bool | None) -> Iterator[str]:
    """Write a table of strengths and answers, each on a line of its own.

    A pipe gets Markdown, and whoever gave ``--text`` or ``--json`` what the document of
    ``--prompts`` says of each answer.
    """
    if text is not None:
        yield render({"answers": [each.document for each in answers]}, text=text)
        return
    if sys.stdout.isatty():
        yield draw(draw_answers(answers))
        return
    yield "| strength | answer |\n|---|---|\n"
    for each in answers:
        line = " ".join(each.text.split()).replace("|", "\\|")
        yield f"| {each.spelled} | {printable(line)} |\n"


def check_question(
    prompt: str | None, prompts_path: str | None, output_path: str | None
) -> None:
    """Refuse flags that do not say what is to be answered, or where it goes."""
    one = prompt is not None and prompts_path is None and output_path is None
    many = prompt is None and prompts_path is not None and output_path is not None
    if not (one or many):
        raise UsageError("give either --prompt, or --prompts together with --output")


def check_given(
    context: typer.Context, strengths: str | None, vectors: Sequence[str]
) -> None:
    """Refuse strengths in two ways, or of nothing."""
    source = context.get_parameter_source("strength")
    given = ["--strength"] * (source is not None and source.name == "COMMANDLINE")
    given += ["--strengths"] * (strengths is not None)
    if len(given) > 1:
        raise UsageError("give either --strength or --strengths, not both")
    if given and not vectors:
        raise UsageError(f"{given[0]} needs --vector", field=given[0])


def write_answers(runtime: Runtime, asked: Asked, output_path: str) -> None:
    """Answer every prompt into a document; say what is kept when that ends early."""
    from ster.documents.answers import AnswerWriter

    answers, total = asked.answers(runtime), len(asked.prompts)
    each = len(asked.strengths) if asked.steer else 1
    writer = AnswerWriter(
        output_path, model=runtime.model, model_revision=runtime.model_revision
    )
    try:
        with writer:
            seldom = Seldom()
            for number in range(1, total + 1):
                if seldom.passes(is_last=number == total):
                    runtime.reporter.note(f"answering prompt {number} of {total}")
                for _ in range(each):
                    writer.write(next(answers))
            next(answers, None)  # after the last, progress comes to its end
    finally:
        if writer.kept is not None:
            kept = counted(writer.num_answers, "answer")
            say(f"kept {kept} of {total * each} in {one_line(writer.kept)}\n")
