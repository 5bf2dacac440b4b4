"""``ster chat``: a conversation in the terminal, steered by a vector or not."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from ster.cli.applying import ApplyingFlags, intervene, with_applying_flags
from ster.cli.model import ModelFlags, with_model_flags
from ster.cli.signals import REPEAT_SECONDS
from ster.cli.steering import check_norms_once, load_vectors, parse_one_strength
from ster.cli.streams import say
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
from ster.errors import PromptError, SterError
from ster.text import counted, printable
from ster.vectors.strengths import Strength

if TYPE_CHECKING:
    from ster.cli.conversation import Conversation, Weighted
    from ster.runs.sampling import Answering
    from ster.runtime import Runtime
    from ster.vectors.applying import Applying
    from ster.vectors.steering import SteeringVector

PROMPT = "> "


@with_model_flags
@with_applying_flags
def chat(
    *,
    vector_words: Vectors = None,
    strength: StrengthOption = "1.0",
    applied: ApplyingFlags,
    system_path: System = None,
    max_new_tokens: MaxNewTokens = 512,
    temperature: Temperature = 0.0,
    top_p: TopP = None,
    seed: Seed = 42,
    flags: ModelFlags,
) -> Iterator[str]:
    """Talk with a model, with a steering vector added to its stream or without.

    A line is a turn, and its answer is printed as it grows. Vector and strength are
    changed by commands between the turns: /help lists them. Ctrl-C stops an answer,
    Ctrl-D ends the conversation.
    """
    from ster.runs.sampling import Answering  # late: --help needs no arrays

    how = Answering.of(
        max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p, seed=seed
    )
    check_drawn(how)
    words, times = vector_words or [], parse_one_strength(strength)
    check_norms_once(words, [times])
    applying = applied.take([times])
    flags.check_device()

    from ster.cli.conversation import Conversation

    state = Conversation(
        system=read_system(system_path),
        vectors=load_vectors(words),
        strength=times,
        applying=applying,
    )
    return talk(flags, state, how)


def talk(flags: ModelFlags, state: Conversation, how: Answering) -> Iterator[str]:
    """Load the model, take lines from stdin, and yield the text of answers.

    Raises:
        SterError: The model is refused; or, where no person watches, a line was.
    """
    from ster.checkpoint.tokens.texts import refuse_several_turns
    from ster.cli.conversation import Loop

    with flags.open(counts=False, once=True) as runtime:
        if runtime.chat_template != "applied":
            refuse_several_turns([("a turn", "and another")], runtime.chat_template)
        for vector, _ in state.vectors:
            check_steering(runtime, vector, state.applying)
        refusals = Refusals()
        with Interrupts() as interrupts:
            loop = Loop(
                state=state,
                answer=Writer(runtime, how, interrupts),
                load=Loader(runtime, state.applying),
                tell=lambda sentence: say(f"{sentence}\n"),
                refuse=refusals,
            )
            watched = sys.stdin.isatty()
            if watched:
                say("/help lists the commands, Ctrl-D ends\n")
            pieces = loop.run(read_lines(interrupts, refusals, watched=watched))
            yield from map(printable, pieces) if sys.stdout.isatty() else pieces
    if not watched:
        refusals.check()


class Writer:
    """Writes answers, each of them stopped by Ctrl-C.

    Args:
        runtime: The model.
        how: How it answers; every answer draws with a seed of its own.
        interrupts: What Ctrl-C does.
    """

    def __init__(
        self, runtime: Runtime, how: Answering, interrupts: Interrupts
    ) -> None:
        self._runtime, self._how, self._interrupts = runtime, how, interrupts
        self._given = 0

    def __call__(self, state: Conversation) -> Iterator[str]:
        """Answer the last turn."""
        sampling = self._how.sampling
        sampling = replace(sampling, seed=sampling.seed + self._given)
        pieces = self._runtime.stream(
            state.messages,
            steer=state.steer,
            answering=replace(self._how, sampling=sampling),
        )
        self._given += 1
        return self._interrupts.guard(pieces)


class Loader:
    """Reads artifacts that can steer a model.

    Args:
        runtime: The model.
        applying: How they are applied.
    """

    def __init__(self, runtime: Runtime, applying: Applying) -> None:
        self._runtime, self._applying = runtime, applying

    def __call__(self, word: str) -> Weighted:
        """Read one, and the strength after its last colon."""
        ((vector, strength),) = load_vectors([os.path.expanduser(word)])
        check_steering(self._runtime, vector, self._applying)
        return vector, strength


def check_steering(
    runtime: Runtime, vector: SteeringVector, applying: Applying
) -> None:
    """Refuse a vector that cannot steer the model, before anybody says a word.

    Raises:
        SterError: It is of another model, width or layers.
    """
    steer = intervene([(vector, Strength(value=1.0))], applying)
    runtime.stream("x", steer=steer)  # it is planned, and never asked for text


class Refusals:
    """Says why lines were not taken, and counts them."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, error: SterError) -> None:
        """Say why something was not done."""
        from ster.cli import error_text
        from ster.cli.suggestions import suggest

        self._count += 1
        error.causes = (*error.causes, *suggest(error))
        say(error_text(error))

    def check(self) -> None:
        """End a conversation that no person led, and so nobody saw the refusals of.

        Raises:
            SterError: A line was refused.
        """
        if self._count:
            were = "was" if self._count == 1 else "were"
            raise SterError(f"{counted(self._count, 'line')} {were} refused")


class Interrupts:
    """What Ctrl-C does in a conversation: it ends an answer, or the line being typed.

    Where it is ignored it stays so, and anywhere else it ends the program as ever.
    """

    def __init__(self) -> None:
        self._ends: type[BaseException] | None = None
        self._answers = self._stopped = False
        self._last = -REPEAT_SECONDS
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        """Take Ctrl-C over."""
        before = signal.getsignal(signal.SIGINT)
        if before != signal.SIG_IGN:
            with suppress(ValueError):  # not the main thread: nothing to take over
                signal.signal(signal.SIGINT, self._interrupt)
                self._before = before
        return self

    def __exit__(self, *exception: object) -> None:
        """Give it back."""
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        now, before = time.monotonic(), self._last
        self._last = now
        if now - before < REPEAT_SECONDS:
            return  # it was the same one
        ends, self._ends = self._ends, None
        self._stopped = True
        if ends is not None:
            raise ends
        if not self._answers and callable(self._before):
            self._before(number, frame)

    @contextmanager
    def ending(self, with_what: type[BaseException]) -> Iterator[None]:
        """Let Ctrl-C raise this within the ``with``."""
        self._ends = with_what
        try:
            yield
        finally:
            self._ends = None

    def guard(self, pieces: Iterator[str]) -> Iterator[str]:
        """Yield pieces until Ctrl-C, which raises ``AnswerStopped``."""
        from ster.cli.conversation import AnswerStopped

        self._answers, self._stopped = True, False
        try:
            while True:
                with self.ending(AnswerStopped):
                    piece = next(pieces, None)
                # Python drops exceptions in some places, and between two pieces there
                # is nothing to raise one in.
                if self._stopped:
                    raise AnswerStopped
                if piece is None:
                    return
                yield piece
        finally:
            self._answers = False


def read_lines(
    interrupts: Interrupts, refuse: Callable[[SterError], None], *, watched: bool
) -> Iterator[str]:
    """Yield the lines of stdin until it ends.

    Args:
        interrupts: What Ctrl-C does.
        refuse: Says why a line is left out: its bytes are not UTF-8.
        watched: Whether a person types them, who may forget one by Ctrl-C.
    """
    from ster.cli.conversation import LineDropped

    read = _open_input(watched=watched)
    while True:
        try:
            if watched:
                with interrupts.ending(LineDropped):
                    line = read()
            else:
                line = read()
        except LineDropped:
            say("\n")
            continue
        except PromptError as error:
            refuse(error)
            continue
        except EOFError:
            if watched:
                say("\n")
            return
        yield line


def _open_input(*, watched: bool) -> Callable[[], str]:
    """Give what reads a line: with editing where a person types and reads."""
    if watched and sys.stdout.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401 - input() then edits lines
        return lambda: _decode(input(PROMPT).encode(_encoding(), "surrogateescape"))

    def read() -> str:
        if watched:
            say(PROMPT)
        line = sys.stdin.buffer.readline()
        if not line:
            raise EOFError
        return _decode(line)

    return read


def _encoding() -> str:
    return sys.stdin.encoding or "utf-8"


def _decode(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeError as error:
        sentence = "failed to tokenize prompt: the bytes of the line are not UTF-8"
        raise PromptError(sentence, field="line") from error
