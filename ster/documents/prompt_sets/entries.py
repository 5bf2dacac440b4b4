"""One prompt as it is given: a text, an object with labels, or a chat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ster.documents.prompt_sets.value import Chat, PromptSet
from ster.text import quoted, trim

# The first of these that an object has is its prompt; the others are labels.
FIELDS = ("prompt", "text", "messages")
NEEDED = "`prompt`, `text` or `messages`"
_TURN = ("role", "content")


class EntryError(ValueError):
    """What is given is no prompt, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A prompt before all of them are checked together.

    Args:
        text: What is read; of a chat the content of its last turn.
        labels: What else is known of it.
        chat: Its turns, if it is one.
        line: Where it begins in a file that has lines, counted from 1.
    """

    text: str
    labels: Mapping[str, object] = field(default_factory=dict)
    chat: Chat | None = None
    line: int | None = None


def make_entry(given: object, line: int | None = None) -> Entry:
    """Make an entry of a string, an object or a list of turns.

    Raises:
        EntryError: It is none of these, or a field of it is of the wrong kind.
    """
    if isinstance(given, str):
        return Entry(text=given, line=line)
    if isinstance(given, Mapping):
        return _of_object(given, line)
    if isinstance(given, list | tuple):
        chat = _make_chat(given)
        return Entry(text=chat[-1]["content"], chat=chat, line=line)
    raise EntryError(f"neither a string nor an object with {NEEDED}")


def assemble(entries: Sequence[Entry]) -> PromptSet:
    """Put entries together; a label that some of them lack is None there.

    Raises:
        PromptError: There are none, or one is blank or no text.
    """
    names = dict.fromkeys(name for entry in entries for name in entry.labels)
    chats = tuple(entry.chat for entry in entries)
    return PromptSet(
        prompts=tuple(entry.text for entry in entries),
        labels={
            name: tuple(entry.labels.get(name) for entry in entries) for name in names
        },
        chats=None if chats.count(None) == len(chats) else chats,
    )


def choose_field(names: Iterable[str]) -> str | None:
    """Choose what holds the prompt among the names of fields or columns."""
    there = set(names)
    return next((name for name in FIELDS if name in there), None)


def _of_object(given: Mapping[Any, object], line: int | None) -> Entry:
    # A table writes None for what a row does not have.
    fields = {
        str(key): value
        for key, value in given.items()
        if value is not None or key not in FIELDS
    }
    name = choose_field(fields)
    if name is None:
        raise EntryError(_describe_lack(fields))
    value = fields.pop(name)
    labels = {key: plain(label) for key, label in fields.items()}
    if name == "messages":
        chat = _make_chat(value)
        return Entry(text=chat[-1]["content"], labels=labels, chat=chat, line=line)
    if not isinstance(value, str):
        chat_goes = "; a chat goes under `messages`" if isinstance(value, list) else ""
        raise EntryError(f"`{name}` is no string{chat_goes}")
    return Entry(text=value, labels=labels, line=line)


def _describe_lack(fields: Mapping[str, object]) -> str:
    lack = f"missing field {NEEDED}"
    if set(_TURN) <= fields.keys():
        return f"{lack}; a chat is a list of turns, and prompts are a list of chats"
    there = ", ".join(map(quoted, fields))
    return f"{lack}; there is {there}" if there else lack


def _make_chat(given: object) -> Chat:
    # Tables keep lists as arrays.
    listed = given.tolist() if hasattr(type(given), "tolist") else given  # type: ignore[attr-defined]
    if not isinstance(listed, list | tuple) or not listed:
        raise EntryError("`messages` is no list of turns")
    return tuple(_make_turn(turn, index) for index, turn in enumerate(listed))


def _make_turn(given: object, index: int) -> dict[str, str]:
    """Copy a turn: other fields that are texts stay, for templates that read them."""
    where = f"`messages[{index}]`"
    if not isinstance(given, Mapping):
        raise EntryError(f"{where} is no object with `role` and `content`")
    turn: dict[str, str] = {}
    for key, value in given.items():
        if value is None and key not in _TURN:
            continue
        if not isinstance(key, str) or not isinstance(value, str):
            raise EntryError(f"{quoted(str(key))} of {where} is no string")
        turn[key] = value
    for key in _TURN:
        if key not in turn:
            raise EntryError(f"missing field `{key}` of {where}")
    if not trim(turn["role"]):
        raise EntryError(f"`role` of {where} is empty")
    return turn


def plain(value: object) -> object:
    """Turn a scalar of an array into Python's own; anything else stays."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        scalar: object = value.item()
        return scalar
    return value
