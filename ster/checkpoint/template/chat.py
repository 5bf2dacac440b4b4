"""Rendering with the chat template, and making sure that the prompt is in the text.

The template runs in ``process``, never here: it is somebody else's program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from ster.checkpoint.template.arguments import refuse_reserved
from ster.checkpoint.template.holding import find_text, holds, writes_parts
from ster.checkpoint.template.process import FAILED, TemplateProcess
from ster.checkpoint.template.published import find_template
from ster.checkpoint.tokenizer_config import LightFiles, TokenizerConfig
from ster.errors import TemplateError
from ster.reporting import Reporter
from ster.text import quoted, trim

READS_CLOCK = (
    "this model's chat template reads the clock, so activations differ from day to day"
)
DROPS_PROMPT = "this model's chat template drops the prompt"
DROPS_RESPONSE = "this model's chat template drops the response"
DROPS_SYSTEM = (
    "this model's chat template drops the system turn, so the model does not read it"
)
DROPS_EARLIER = (
    "this model's chat template drops earlier turns of a conversation, so the model "
    "does not read them"
)
MAX_REASON = 500
# Conversations that are sent together, unless they have more characters than that.
MAX_ASKED = 256
_MAX_CHARACTERS = 1 << 20

Conversation = Sequence[Mapping[str, str]]

# No template has these words of its own.
_PROBE: Conversation = ({"role": "user", "content": "Hello zyxqwv 48213"},)


class TemplateRefusal(TemplateError):
    """The template itself refuses to render a conversation, or drops a part of it."""


class ChatTemplate:
    """A model's own template. Its process is started here, and tried by ``check``.

    Args:
        source: The template's text.
        special_tokens: The declared tokens by name, such as ``bos_token``; one that is
            declared as null is None, and renders as nothing.
        reporter: Is told when the template reads the clock.
        template_args: Variables of the template, by name.

    Raises:
        TemplateError: The process cannot be started.
    """

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str | None],
        reporter: Reporter,
        template_args: Mapping[str, object] | None = None,
    ) -> None:
        self._process = TemplateProcess(source, special_tokens, template_args)
        self._reporter = reporter
        # Whether content goes in parts, for templates that read nothing else.
        self._in_parts = False
        self._reads_clock = False
        # What follows a conversation's last turn, by the roles of its turns.
        self._after: dict[tuple[str, ...], str | None] = {}
        self._said: set[str] = set()
        self._process.start()

    @classmethod
    def load(
        cls,
        files: LightFiles,
        config: TokenizerConfig,
        reporter: Reporter,
        template_args: Mapping[str, object] | None = None,
    ) -> Self | None:
        """Read the template that a checkpoint publishes; None without one.

        Raises:
            TemplateError: The template cannot be read or chosen, or its process not
                started.
            UsageError: An argument has the name of a special token.
        """
        source = find_template(files, config)
        if source is None:
            return None
        tokens = config.special_tokens()
        refuse_reserved(template_args or {}, tokens)
        return cls(source, tokens, reporter, template_args)

    def check(self) -> None:
        """Render a user message, and find out whether content has to go in parts.

        Raises:
            TemplateError: The template does not parse, does not render, or drops what
                the user says.
        """
        refusal: TemplateError = TemplateError(DROPS_PROMPT, _HOW_IT_WAS_TRIED)
        for in_parts in (False, True):
            try:
                (text,) = self._render([_PROBE], in_parts=in_parts)
            except TemplateRefusal as error:
                if not in_parts:
                    refusal = error
            else:
                content = _PROBE[0]["content"]
                if holds(text, content) and not writes_parts(text, content):
                    self._in_parts = in_parts
                    return
        raise refusal

    def render(
        self, conversations: Sequence[Conversation], *, add_generation_prompt: bool
    ) -> list[str]:
        """Render conversations, without checking what the texts hold.

        Args:
            conversations: Turns of ``role`` and ``content``.
            add_generation_prompt: Whether to open the assistant's next turn.

        Raises:
            TemplateError: The template refuses one of them, or has to be stopped.
        """
        texts: list[str] = []
        for batch in split_batches(conversations):
            texts += self._render(
                batch,
                in_parts=self._in_parts,
                add_generation_prompt=add_generation_prompt,
            )
        self._note_the_clock()
        return texts

    def render_whole(
        self, conversations: Sequence[Conversation]
    ) -> Iterator[list[str]]:
        """Render conversations in batches, and make sure that their texts hold them.

        The assistant's turn is opened, unless it is the last one already. A
        conversation that its text does not hold is rendered once more, with content in
        the other form: in parts instead of as a text, or the reverse. Of system turns
        that are dropped all the same, one warning is given.

        Raises:
            TemplateError: As for ``render``; the template drops the prompt or the
                response.
        """
        done = 0
        for batch in split_batches(conversations):
            try:
                texts = self._render(batch, in_parts=self._in_parts)
                for number, turns in enumerate(batch):
                    texts[number] = self._make_whole(turns, texts[number], number)
            except TemplateRefusal as refusal:
                raise _counted(refusal, done, len(conversations)) from None
            self._note_the_clock()
            yield texts
            done += len(batch)

    def find_last_turn(
        self, turns: Conversation, rendering: str
    ) -> tuple[int, int] | None:
        """Find the characters of a last turn in its rendering; see ``find_text``."""
        roles = tuple(turn["role"] for turn in turns)
        if roles not in self._after:
            self._after[roles] = self._find_after(roles)
        return find_text(rendering, turns[-1]["content"], self._after[roles])

    def _find_after(self, roles: tuple[str, ...]) -> str | None:
        """Render other words in such turns; return what follows the last of them."""
        words = _PROBE[0]["content"]
        probe = [
            {"role": role, "content": f"{words} {number}"}
            for number, role in enumerate(roles)
        ]
        try:
            (text,) = self._render([probe], in_parts=self._in_parts)
        except TemplateRefusal:
            return None
        before, found, after = text.rpartition(probe[-1]["content"])
        del before
        return after if found else None

    def _make_whole(self, turns: Conversation, text: str, number: int) -> str:
        """Return a rendering that holds the prompt and the response, or refuse."""
        missing = _missing_roles(turns, text)
        if missing:
            other = self._render_otherwise(turns)
            if other is not None and _missing_roles(turns, other) < missing:
                text, missing = other, _missing_roles(turns, other)
        said = missing - {"system"}
        if said or turns[-1]["role"] in missing:
            sentence = DROPS_RESPONSE if said == {"assistant"} else DROPS_PROMPT
            raise TemplateRefusal(sentence, _HOW_IT_WAS_TRIED, prompt=number + 1)
        if missing:
            self._warn_once(DROPS_SYSTEM)
        asked = [turn["content"] for turn in turns[:-1] if turn["role"] == "user"]
        if not all(holds(text, content) for content in asked if trim(content)):
            self._warn_once(DROPS_EARLIER)
        return text

    def _render_otherwise(self, turns: Conversation) -> str | None:
        in_parts = not self._in_parts
        try:
            (text,) = self._render([turns], in_parts=in_parts)
        except TemplateRefusal:
            return None
        every = "\n".join(turn["content"] for turn in turns)
        return None if in_parts and writes_parts(text, every) else text

    def _render(
        self,
        conversations: Sequence[Conversation],
        *,
        in_parts: bool,
        add_generation_prompt: bool | None = None,
    ) -> list[str]:
        replies = self._process.ask(
            [
                {
                    "messages": [_message(turn, in_parts) for turn in turns],
                    "add_generation_prompt": _is_asked(turns)
                    if add_generation_prompt is None
                    else add_generation_prompt,
                }
                for turns in conversations
            ]
        )
        texts: list[str] = []
        for reply in replies:
            text = reply.get("text")
            if "error" in reply or not isinstance(text, str):
                raise _refusal(reply.get("error"), text, len(texts) + 1)
            self._take_facts(reply)
            texts.append(text)
        return texts

    def _take_facts(self, reply: Mapping[str, object]) -> None:
        self._reads_clock |= reply.get("clock") is True
        unread = reply.get("unread")
        for name in unread if isinstance(unread, list) else ():
            self._warn_once(
                f"this model's chat template does not read {quoted(str(name))}, so the "
                "argument changes nothing"
            )

    def _note_the_clock(self) -> None:
        if self._reads_clock and READS_CLOCK not in self._said:
            self._said.add(READS_CLOCK)
            self._reporter.note(READS_CLOCK)

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self._reporter.warn(sentence)


_HOW_IT_WAS_TRIED = (
    "it was given as a text and in parts; --chat-template off encodes it as raw text"
)


def split_batches(conversations: Sequence[Conversation]) -> list[list[Conversation]]:
    """Cut conversations into batches, so that few texts are held at a time."""
    batches: list[list[Conversation]] = []
    room = 0
    for turns in conversations:
        size = sum(len(turn["content"]) for turn in turns)
        if not batches or len(batches[-1]) == MAX_ASKED or size > room:
            batches.append([])
            room = _MAX_CHARACTERS
        batches[-1].append(turns)
        room -= size
    return batches


def _is_asked(turns: Conversation) -> bool:
    """Tell whether the assistant is to speak next."""
    return turns[-1]["role"] != "assistant"


def _message(turn: Mapping[str, str], in_parts: bool) -> dict[str, object]:
    if not in_parts:
        return dict(turn)
    parts = [{"type": "text", "text": turn["content"]}]
    return {**turn, "content": parts}


def _missing_roles(turns: Conversation, text: str) -> set[str]:
    """Find the roles of the turns that a rendering should hold and does not.

    It should hold the system turn, the last turn and, where the last turn is an answer,
    the prompt before it. Earlier answers do not count: templates take the thinking out
    of them.
    """
    asked = [turn for turn in turns[:-1] if turn["role"] == "system"] + [turns[-1]]
    if turns[-1]["role"] == "assistant":
        asked += turns[-2:-1]
    return {
        turn["role"]
        for turn in asked
        if trim(turn["content"]) and not holds(text, turn["content"])
    }


def _refusal(kind: object, text: object, number: int) -> TemplateError:
    """Turn an error that the child reports into a refusal; its text is a stranger's."""
    reason = _one_line(str(text))
    if kind == "token":
        return TemplateError(
            f"this model's chat template uses {reason}, "
            "but its tokenizer config declares none"
        )
    if kind == "parse":
        return TemplateError(f"this model's chat template does not parse: {reason}")
    return TemplateRefusal(f"{FAILED}: {reason}", prompt=number)


def _counted(refusal: TemplateRefusal, done: int, number: int) -> TemplateRefusal:
    """Number a refused conversation among all batches; one alone has no number."""
    at = None if number == 1 or refusal.prompt is None else done + refusal.prompt
    return TemplateRefusal(refusal.sentence, *refusal.causes, prompt=at)


def _one_line(text: str) -> str:
    """Drop line ends and what could control a terminal, and cut a text short."""
    words = " ".join(text.split())
    shown = "".join(
        c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in words
    )
    if not shown:
        return "it refuses with a message that says nothing"
    return shown if len(shown) <= MAX_REASON else shown[: MAX_REASON - 1] + "…"
