"""A set of prompts, with what else is known of each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeAlias

from ster.documents.cards import prompt_card
from ster.documents.prompts import check_prompts, check_text
from ster.errors import PromptError
from ster.html import to_html
from ster.text import counted, one_line

Chat = tuple[Mapping[str, str], ...]
_SHOWN_LABELS = 5


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PromptSet:
    """Prompts in order, their labels, and the turns of those that are chats.

    Args:
        prompts: The text of each; of a chat the content of its last turn.
        labels: What else is known of each prompt, by name; None where one lacks it.
        chats: The turns of each prompt that is a chat, None for the others; None where
            no prompt is one. A turn has a ``role`` and a ``content``.

    Raises:
        PromptError: There are no prompts, one is blank or no text, or the parts do not
            fit together.
    """

    prompts: tuple[str, ...]
    labels: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    chats: tuple[Chat | None, ...] | None = None

    def __post_init__(self) -> None:
        """Check once that there is something to read, and that the parts fit."""
        check_prompts(self.prompts)
        for name, values in self.labels.items():
            self._check_number(values, f"label {one_line(name)}", name)
        if self.chats is None:
            return
        self._check_number(self.chats, "chats", "chats")
        for number, chat in enumerate(self.chats, start=1):
            if chat is None:
                continue
            for text in (text for turn in chat for text in turn.values()):
                check_text(text, "a turn", number)
            if not chat or chat[-1].get("content") != self.prompts[number - 1]:
                sentence = f"chat {number} does not end with its prompt"
                raise PromptError(sentence, field="chats", found=chat, prompt=number)

    def __len__(self) -> int:
        """Count the prompts."""
        return len(self.prompts)

    def __iter__(self) -> Iterator[str]:
        """Go through the texts in order."""
        return iter(self.prompts)

    def __repr__(self) -> str:
        """Show what there is, not the texts."""
        parts = [counted(len(self), "prompt")]
        num_chats = sum(chat is not None for chat in self.chats or ())
        if num_chats:
            parts.append(counted(num_chats, "chat"))
        if self.labels:
            names = [one_line(name) for name in self.labels]
            shown = names[:_SHOWN_LABELS] + ["…"] * (len(names) > _SHOWN_LABELS)
            parts.append(f"labels {', '.join(shown)}")
        return f"PromptSet({', '.join(parts)})"

    def _repr_html_(self) -> str:
        return to_html(prompt_card(self))

    @property
    def conversations(self) -> list[Chat]:
        """Every prompt as turns: its chat, or itself as the one turn of a user."""
        chats = self.chats or (None,) * len(self)
        return [
            ({"role": "user", "content": prompt},) if chat is None else chat
            for prompt, chat in zip(self.prompts, chats, strict=True)
        ]

    def conversations_to_answer(self, system: str | None = None) -> list[Chat]:
        """Return the turns that a model is to answer.

        Args:
            system: The system's turn before them, if any.

        Raises:
            PromptError: A chat ends with an answer, or has a system's turn already.
        """
        before: Chat = ()
        if system is not None:
            before = ({"role": "system", "content": system},)
        asked = self.conversations
        for number, turns in enumerate(asked, start=1):
            roles = [turn.get("role") for turn in turns]
            if roles[-1] == "assistant":
                raise PromptError(
                    f"prompt {number} ends with the assistant's turn, so nothing is "
                    "left to answer",
                    prompt=number,
                )
            if before and "system" in roles:
                raise PromptError(
                    f"prompt {number} has a system turn of its own, and another is "
                    "given",
                    prompt=number,
                )
        return [before + turns for turns in asked]

    @classmethod
    def of(cls, prompts: Prompts) -> PromptSet:
        """Take prompts as a notebook has them.

        Args:
            prompts: A prompt set, or an ordered iterable, array or column of prompts.
                A prompt is a string, a mapping with ``prompt``, ``text`` or
                ``messages``, whose other keys are labels, or a chat: a list of
                mappings with ``role`` and ``content``. Or a table, such as a pandas
                DataFrame or a ``datasets.Dataset``, with a column of such a name.

        Raises:
            PromptError: It is something else, or a prompt in it is refused.

        Example:
            >>> from ster import PromptSet
            >>> PromptSet.of([{"text": "What a day!", "mood": "joy"}, "Hello."])
            PromptSet(2 prompts, labels mood)
        """
        # Late: what it is made from is made of this.
        from ster.documents.prompt_sets.given import take_prompt_set

        return take_prompt_set(prompts)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, stream: BinaryIO | None = None
    ) -> PromptSet:
        """Read a file; its suffix says how.

        Args:
            path: ``.jsonl``, ``.csv``, ``.tsv`` or ``.txt``; any other is JSON. ``-``
                is standard input, whose form its content tells.
            stream: What ``-`` reads instead of standard input.

        Raises:
            DocumentError: It cannot be read or is no prompt set.
            PromptError: It has no prompts, or a blank one.
        """
        from ster.documents.prompt_sets.files import read_prompt_set

        return read_prompt_set(path, stream=stream)

    def _check_number(self, values: Sequence[object], what: str, name: str) -> None:
        if len(values) != len(self):
            given = f"{what} has {counted(len(values), 'value')}"
            sentence = f"{given} for {counted(len(self), 'prompt')}"
            raise PromptError(sentence, field=name, found=len(values))


# A table is an iterable of its columns' names; what is in it is found at run time.
Prompts: TypeAlias = PromptSet | Iterable[Any]
