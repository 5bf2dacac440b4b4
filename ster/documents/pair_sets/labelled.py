"""Pairs of prompts that carry a label: those of one value beside those of the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ster.documents.pair_sets.pair import ContrastPair
from ster.documents.pair_sets.splits import shuffled
from ster.documents.prompt_sets.value import Prompts, PromptSet
from ster.errors import DocumentError, require_seed, require_string
from ster.text import counted, quoted

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPairs:
    """What a labelled set gives.

    Args:
        pairs: As many as there are prompts of the rarer value.
        positive: The value of the positive sides, as it is written.
        left_over: A sentence on the prompts that are in no pair; empty if all are.
    """

    pairs: tuple[ContrastPair, ...]
    positive: str
    left_over: str


def pair_by_label(
    prompts: Prompts, *, label: str, positive: object, seed: int = 0
) -> LabelledPairs:
    """Pair prompts of one value with prompts of the other, as a seed decides.

    Args:
        prompts: Whatever ``PromptSet.of`` takes, with labels.
        label: The name of a label that has two values.
        positive: The value of the positive sides, or how it is written.
        seed: Decides who is paired with whom.

    Raises:
        DocumentError: There is no such label or value, it has not two values, or a
            prompt lacks it or is a chat of several turns.
        UsageError: The label is no string, or the seed no whole number, or below zero.
    """
    label, seed = require_string(label, "label"), require_seed(seed)
    taken = PromptSet.of(prompts)
    values = _values_of(taken, label)
    chosen, other = _choose(values, label, positive)
    texts = plain_texts(taken, "paired by its label")
    sides = []
    for turn, value in enumerate((chosen, other)):
        own = [text for text, each in zip(texts, values, strict=True) if each == value]
        # Two seeds, or sides of the same number would keep their order to each other.
        sides.append([own[index] for index in shuffled(len(own), 2 * seed + turn)])
    pairs = tuple(
        ContrastPair(positive=first, negative=second)
        for first, second in zip(*sides, strict=False)
    )
    return LabelledPairs(
        pairs=pairs,
        positive=chosen,
        left_over=_describe_rest(
            len(pairs), {chosen: len(sides[0]), other: len(sides[1])}, label
        ),
    )


def plain_texts(prompts: PromptSet, doing: str) -> list[str]:
    """Return prompts that are texts, or chats of one turn of a user.

    Args:
        prompts: The prompts.
        doing: What cannot be done with other chats, as "paired".

    Raises:
        DocumentError: One is another chat.
    """
    for number, turns in enumerate(prompts.conversations, start=1):
        if len(turns) > 1 or turns[0]["role"] != "user":
            raise DocumentError(
                f"prompt {number} is a chat of several turns, which is not {doing}",
                found=turns,
                prompt=number,
            )
    return [*prompts.prompts]


def _values_of(prompts: PromptSet, label: str) -> list[str]:
    """Return a label's values as they are written."""
    if label not in prompts.labels:
        there = ", ".join(map(quoted, prompts.labels)) or "none"
        raise DocumentError(
            f"the prompts have no label {quoted(label)}",
            f"their labels are {there}",
            field="label",
            found=label,
            expected=tuple(prompts.labels),
        )
    values = prompts.labels[label]
    for number, value in enumerate(values, start=1):
        if value is None or value != value or value == "":
            raise DocumentError(
                f"prompt {number} has no label {quoted(label)}",
                field="label",
                prompt=number,
            )
    return [_spell(value) for value in values]


def _choose(values: Sequence[str], label: str, positive: object) -> tuple[str, str]:
    there = list(dict.fromkeys(values))
    if len(there) != 2:
        shown = ", ".join(map(quoted, there[:_SHOWN])) + ", …" * (len(there) > _SHOWN)
        raise DocumentError(
            f"the label {quoted(label)} has {counted(len(there), 'value')}, and pairs "
            "need two",
            f"there is {shown}; the prompts of two values alone would do",
            field="label",
            found=tuple(there),
        )
    chosen = _spell(positive)
    if chosen not in there:
        raise DocumentError(
            f"no prompt has {quoted(chosen)} as its label {quoted(label)}",
            f"its values are {quoted(there[0])} and {quoted(there[1])}",
            field="positive",
            found=positive,
            expected=tuple(there),
        )
    return chosen, there[1 - there.index(chosen)]


def _spell(value: object) -> str:
    """Write a value as JSON does, so that a flag can name it; 1.0 is 1."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _describe_rest(num_pairs: int, counts: dict[str, int], label: str) -> str:
    """Say which prompts are in no pair."""
    for value, count in counts.items():
        if count > num_pairs:
            rest = counted(count - num_pairs, "prompt")
            verb = "was" if count - num_pairs == 1 else "were"
            return (
                f"{counted(num_pairs, 'pair')} by the label {quoted(label)}; {rest} of "
                f"{quoted(value)} {verb} left over"
            )
    return ""
