"""Pairs from two instructions and a set of prompts: a persona and its opposite."""

from __future__ import annotations

from collections.abc import Sequence

from ster.documents.pair_sets.labelled import plain_texts
from ster.documents.pair_sets.pair import ContrastPair
from ster.documents.pairs import PairSet
from ster.documents.prompt_sets.value import Prompts, PromptSet
from ster.errors import UsageError, check_word
from ster.text import counted, trim

# How an instruction stands to a prompt.
WAYS = ("prefix", "system")
PLACE = "{prompt}"


def make_persona_pairs(
    positive: Sequence[str],
    negative: Sequence[str],
    prompts: Prompts,
    *,
    way: str = "prefix",
    trait_name: str = "",
) -> PairSet:
    """Put an instruction and its opposite before every prompt.

    Pairs of one prompt stand together, one for each wording, so that the end of the set
    has prompts that its beginning lacks.

    Args:
        positive: Wordings of the instruction whose trait the positive sides have.
        negative: The opposite of each, or one for all.
        prompts: Whatever ``PromptSet.of`` takes.
        way: ``prefix``: the instruction begins the user's text, or stands around the
            prompt where it has ``{prompt}``. ``system``: it is the system's turn.
        trait_name: What the positive sides have.

    Raises:
        SterError: An instruction is blank or the same as its opposite, their numbers do
            not fit, or a prompt is a chat of several turns.
    """
    check_word("way of a persona", way, WAYS, field="--as")
    both = match_wordings(positive, negative)
    if way == "system":
        for text in (text for wording in both for text in wording):
            if PLACE in text:
                raise UsageError(
                    f"a system turn has no place for {PLACE}",
                    "--as prefix puts the prompt into the instruction",
                    found=text,
                )
    texts = plain_texts(PromptSet.of(prompts), "put behind an instruction")
    make = _as_system if way == "system" else _as_prefix
    pairs = tuple(make(text, *wording) for text in texts for wording in both)
    return PairSet(trait_name=trait_name, pairs=pairs)


def match_wordings(
    positive: Sequence[str], negative: Sequence[str]
) -> list[tuple[str, str]]:
    """Put every wording of an instruction beside its opposite.

    Raises:
        UsageError: One is blank or the same as its opposite, or their numbers differ
            and neither is one.
    """
    for text in (*positive, *negative):
        if not trim(text.replace(PLACE, "")):
            raise UsageError("an instruction must not be empty", found=text)
    most = max(len(positive), len(negative))
    if any(len(each) not in (1, most) for each in (positive, negative)):
        raise UsageError(
            f"{counted(len(positive), 'positive instruction')} and "
            f"{counted(len(negative), 'negative one')} do not pair",
            "give as many of both, or one that goes with all",
            found=(len(positive), len(negative)),
        )
    both = [
        (positive[index % len(positive)], negative[index % len(negative)])
        for index in range(most)
    ]
    for first, second in both:
        if first == second:
            raise UsageError(
                "the positive and the negative instruction are the same", found=first
            )
    return both


def _as_system(text: str, positive: str, negative: str) -> ContrastPair:
    return ContrastPair(
        positive=text,
        negative=text,
        positive_system=positive,
        negative_system=negative,
        group=text,
    )


def _as_prefix(text: str, positive: str, negative: str) -> ContrastPair:
    return ContrastPair(
        positive=_instruct(positive, text),
        negative=_instruct(negative, text),
        group=text,
    )


def _instruct(instruction: str, text: str) -> str:
    """Put a prompt where an instruction has a place for it, or else behind it."""
    if PLACE in instruction:
        return instruction.replace(PLACE, text)
    apart = "" if instruction[-1].isspace() else " "
    return f"{instruction}{apart}{text}"
