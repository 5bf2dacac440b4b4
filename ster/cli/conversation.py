"""A conversation in a terminal: lines in, answers out, and the commands between them.

It knows no terminal and no model: lines come from an iterator, answers from a function,
and what is told beside the answers goes to another.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ster.cli.applying import intervene
from ster.errors import SterError, UsageError
from ster.text import counted, one_line, quoted, trim
from ster.vectors.applying import ADDING, Applying
from ster.vectors.interventions import Intervention
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import Strength

Weighted = tuple[SteeringVector, Strength]
ONCE = Strength(value=1.0)

HELP = """\
/strength S   steer the next answers at S, such as 4 or 0.05n; 0 is not at all
/vector FILE  steer with this artifact from now on; FILE:4 at four times its length
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
        vectors: What steers, each with a strength of its own.
        strength: How much of all of them.
        applying: How they are applied, and to which tokens.
    """

    system: str | None = None
    vectors: Sequence[Weighted] = ()
    strength: Strength = ONCE
    applying: Applying = ADDING
    turns: list[dict[str, str]] = field(default_factory=list, init=False)

    @property
    def steer(self) -> list[Intervention]:
        """What is done to the stream of the next answer."""
        if self.applying.does_nothing_at(self.strength):
            return []
        return intervene(self.vectors, self.applying, self.strength)

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
    load: Callable[[str], Weighted]
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
            self._steer(state.vectors, _read_strength(rest) if rest else state.strength)
        elif name == "vector":
            self._steer([self.load(rest)] if rest else state.vectors, state.strength)
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

    def _steer(self, vectors: Sequence[Weighted], strength: Strength) -> None:
        """Steer the next answers so, and say it; refused where norms count twice."""
        names = [
            f"{one_line(vector.trait_name)} ({one_line(vector.method)}, "
            f"{counted(len(vector.layers), 'layer')}) at strength {own * strength}"
            for vector, own in vectors
        ]
        intervene(vectors, self.state.applying, strength)  # refused before it is set
        self.state.vectors, self.state.strength = vectors, strength
        absent = f"strength {strength}, but there is no vector: /vector FILE"
        self.tell(", ".join(names) if names else absent)


def _read_strength(word: str) -> Strength:
    from ster.cli.steering import parse_one_strength

    return parse_one_strength(word)


def _unknown(name: str) -> UsageError:
    near = difflib.get_close_matches(name, COMMANDS, 1)
    meant = f"did you mean /{near[0]}?" if near else "/help lists them"
    return UsageError(f"unknown command {quoted('/' + name)}; {meant}", found=name)
