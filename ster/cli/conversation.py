"""A conversation in a terminal: lines in, answers out, and the commands between them.

It knows no terminal and no model: lines come from an iterator, answers from a function,
and what is told beside the answers goes to another.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ster.errors import SterError, UsageError
from ster.text import counted, decimal, one_line, quoted, trim
from ster.vectors.steering import SteeringVector

HELP = """\
/strength S   steer the next answers at S; 0 is not at all
/vector FILE  steer with this artifact from now on
/system TEXT  what the system says before all else; nothing takes it away
/again        answer the last turn anew
/reset        forget all turns; vector, strength and system stay
/help         show these commands
/quit         end, as Ctrl-D does
A line that begins with // is sent with one slash. Ctrl-C stops an answer."""
COMMANDS = ("strength", "vector", "system", "again", "reset", "help", "quit")


class AnswerStopped(BaseException):
    """The answer that is being written is to end; the conversation goes on."""


class LineDropped(BaseException):
    """The line that is being typed is to be forgotten."""


class _Ended(Exception):
    """The conversation is over."""


@dataclass(slots=True, kw_only=True)
class Conversation:
    """What was said so far, and what the next answer is steered with.

    Args:
        system: What the system says before all turns, if anything.
        vector: What steers, if anything.
        strength: How much of it.
    """

    system: str | None = None
    vector: SteeringVector | None = None
    strength: float = 1.0
    turns: list[dict[str, str]] = field(default_factory=list, init=False)

    @property
    def steer(self) -> Sequence[SteeringVector]:
        """What is added to the stream of the next answer."""
        is_on = self.vector is not None and self.strength != 0
        return [self.vector * self.strength] if is_on and self.vector else []

    @property
    def messages(self) -> list[dict[str, str]]:
        """All turns, the system's first."""
        if self.system is None:
            return [*self.turns]
        return [{"role": "system", "content": self.system}, *self.turns]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Takes lines to their end, and yields the text of answers.

    Args:
        state: The conversation.
        answer: Writes the answer to the conversation's last turn, piece by piece.
        load: Reads a steering artifact, and refuses one that cannot steer this model.
        tell: Says something that is no answer.
        refuse: Says why something was not done.
    """

    state: Conversation
    answer: Callable[[Conversation], Iterator[str]]
    load: Callable[[str], SteeringVector]
    tell: Callable[[str], None]
    refuse: Callable[[SterError], None]

    def run(self, lines: Iterable[str]) -> Iterator[str]:
        """Take line after line; a line that is refused changes nothing."""
        for line in lines:
            text = trim(line)
            if not text:
                continue
            before = [*self.state.turns]
            try:
                yield from self._take(text)
            except _Ended:
                return
            except SterError as error:
                self.state.turns[:] = before
                self.refuse(error)

    def _take(self, text: str) -> Iterator[str]:
        if text.startswith("/") and not text.startswith("//"):
            name, _, rest = text[1:].partition(" ")
            if self._obey(name, trim(rest)):
                yield from self._answer()
            return
        self._add("user", text.removeprefix("/") if text[:2] == "//" else text)
        yield from self._answer()

    def _answer(self) -> Iterator[str]:
        """Answer the last turn; what was written of an answer that stops stays."""
        said: list[str] = []
        try:
            for piece in self.answer(self.state):
                said.append(piece)
                yield piece
        except AnswerStopped:
            if not trim("".join(said)):
                self.state.turns.pop()  # or two turns of the user would follow
                self.tell("stopped; the last turn is forgotten")
                return
            self.tell("\nstopped")
        self._add("assistant", "".join(said))
        yield "\n"

    def _add(self, role: str, content: str) -> None:
        self.state.turns.append({"role": role, "content": content})

    def _obey(self, name: str, rest: str) -> bool:
        """Do what a command says; tell whether the last turn is to be answered."""
        state = self.state
        if name == "strength":
            state.strength = _read_strength(rest) if rest else state.strength
            self.tell(self._steering())
        elif name == "vector":
            state.vector = self.load(rest) if rest else state.vector
            self.tell(self._steering())
        elif name == "system":
            state.system = rest or None
            self.tell("the system's turn is set" if rest else "no system's turn")
        elif name == "reset":
            state.turns.clear()
            self.tell("all turns are forgotten")
        elif name == "help":
            self.tell(HELP)
        elif name == "quit":
            raise _Ended
        elif name == "again":
            return self._go_back()
        else:
            raise _unknown(name)
        return False

    def _go_back(self) -> bool:
        if not self.state.turns:
            raise UsageError("there is nothing to answer yet")
        if self.state.turns[-1]["role"] == "assistant":
            self.state.turns.pop()
        return True

    def _steering(self) -> str:
        """Say what the next answer is steered with."""
        vector, strength = self.state.vector, decimal(self.state.strength)
        if vector is None:
            return f"strength {strength}, but there is no vector: /vector FILE"
        name = one_line(vector.trait_name)
        layers = counted(len(vector.layers), "layer")
        return f"{name} ({vector.method}, {layers}) at strength {strength}"


def _read_strength(word: str) -> float:
    from ster.vectors.strengths import take_multipliers

    taken = take_multipliers(word, "/strength")
    if len(taken) != 1 or abs(taken[0]) == float("inf") or taken[0] != taken[0]:
        raise UsageError(f"/strength takes one number, not {quoted(word)}", found=word)
    return taken[0]


def _unknown(name: str) -> UsageError:
    near = difflib.get_close_matches(name, COMMANDS, 1)
    meant = f"did you mean /{near[0]}?" if near else "/help lists them"
    return UsageError(f"unknown command {quoted('/' + name)}; {meant}", found=name)
