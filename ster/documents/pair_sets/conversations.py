"""Pairs whose sides follow a system's turn, as the chats that a model reads."""

from __future__ import annotations

from ster.documents.pairs import PairSet
from ster.documents.prompt_sets.value import Chat, PromptSet


def to_chats(pairs: PairSet) -> PromptSet:
    """Write every side as a chat: the system, what is asked, and the side.

    A side that answers a prompt is the assistant's turn, any other the user's.
    """
    sides = zip(pairs.prompts, pairs.asked, pairs.systems, strict=True)
    chats = tuple(_to_chat(*side) for side in sides)
    return PromptSet(prompts=tuple(pairs.prompts), chats=chats)


def _to_chat(text: str, asked: str | None, system: str | None) -> Chat:
    turns = [] if system is None else [{"role": "system", "content": system}]
    if asked is not None:
        turns.append({"role": "user", "content": asked})
    turns.append({"role": "user" if asked is None else "assistant", "content": text})
    return tuple(turns)
