"""What is to be answered: a prompt, or a conversation whose last turn is the user's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ster.documents.prompts import check_prompts
from ster.errors import PromptError, UsageError, require_string
from ster.runs.session import Session
from ster.stream.packing import Tokens
from ster.text import quoted, trim

# Of ``role`` and ``content``, the oldest first.
Turns = Sequence[Mapping[str, str]]
ROLES = ("system", "user", "assistant")


def take_chats(prompts: Iterable[str | Turns], system: str | None) -> list[Turns]:
    """Turn prompts into conversations that the model is to answer.

    Args:
        prompts: Texts, each the one turn of a user; or turns, the last one a user's.
        system: The system's turn before them, if any.

    Raises:
        PromptError: A prompt is empty.
        UsageError: A turn is no turn, or not where it may be.
    """
    listed: list[Any] = [*prompts]
    texts = [each for each in listed if isinstance(each, str) or not _is_list(each)]
    if texts or not listed:
        check_prompts(texts)
    before = [] if system is None else [_turn("system", system)]
    return [
        [*before, _turn("user", each)]
        if isinstance(each, str)
        else [*before, *check_turns(each, has_system=system is not None)]
        for each in listed
    ]


def check_turns(turns: Turns, *, has_system: bool = False) -> list[dict[str, str]]:
    """Refuse turns that are no conversation a model can answer.

    Args:
        turns: The turns.
        has_system: The system's turn was given already.

    Raises:
        PromptError: What is to be answered is empty.
        UsageError: A turn has no role or content, or is not where it may be.
    """
    taken = [_check_turn(turn, number) for number, turn in enumerate(turns, start=1)]
    for number, turn in enumerate(taken, start=1):
        if turn["role"] == "system" and (number > 1 or has_system):
            sentence = "the system's turn stands once, before all others"
            raise UsageError(sentence, field="role", found=turn["role"])
    if not taken or taken[-1]["role"] != "user":
        raise UsageError(
            "the last turn of a conversation must be the user's, which is answered",
            field="role",
            found=taken[-1]["role"] if taken else None,
            expected="user",
        )
    check_prompts([taken[-1]["content"]])
    return taken


def encode_chats(session: Session, chats: Sequence[Turns]) -> Sequence[Tokens]:
    """Encode conversations; refuse those with no room for an answer.

    Raises:
        PromptError: One is too long, or has several turns and there is no template.
    """
    label = session.encoder.chat_template
    if label != "applied" and any(len(turns) > 1 for turns in chats):
        raise needs_template(label)
    token_ids = session.encoder.encode_conversations(chats)
    session.check_tokens(token_ids)
    limit = session.spec.max_position_embeddings
    for number, ids in enumerate(token_ids, start=1):
        if len(ids) >= limit:
            raise PromptError(
                f"prompt contains {len(ids)} tokens, model context allows fewer than "
                f"{limit}",
                prompt=number,
                found=len(ids),
                expected=limit,
            )
    return token_ids


def needs_template(label: str) -> PromptError:
    """Make the refusal of several turns without the template that parts them."""
    return PromptError(
        "a conversation of several turns needs the model's chat template, and this "
        f"run's chat template is {label}",
        field="chat_template",
        found=label,
        expected="applied",
    )


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _check_turn(turn: object, number: int) -> dict[str, str]:
    if not isinstance(turn, Mapping) or turn.keys() != {"role", "content"}:
        sentence = f"turn {number} must have a role and a content, and nothing else"
        raise UsageError(sentence, field="prompt", found=turn)
    role = require_string(turn["role"], "role")
    content = require_string(turn["content"], "content")
    if role not in ROLES:
        raise UsageError(
            f"unknown role {quoted(role)}; expected system, user or assistant",
            field="role",
            found=role,
            expected=ROLES,
        )
    if role == "system" and not trim(content):
        raise PromptError("the system's turn is empty", field="content")
    return _turn(role, content)
