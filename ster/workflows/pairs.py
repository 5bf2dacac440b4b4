"""Reading both sides of contrastive pairs, in one pass.

Each positive side stands before its negative one, so that what a pair's sides have in
common is computed once.
"""

from __future__ import annotations

from dataclasses import replace

from ster.checkpoint.encoder import ROLES
from ster.documents.pairs import PairSet
from ster.errors import UsageError, check_word
from ster.runs.gathering import Gathering
from ster.runs.reading import LAST_ROWS, Reading, ReadingChoice, plan_reading
from ster.runs.session import Session
from ster.stream.changes import Deltas
from ster.token_choice import Tokens, choose_one_row
from ster.vectors.selection import PairRows
from ster.vectors.steering import SteeringVector


def choose_reading(tokens: Tokens = "last", role: str = "user") -> ReadingChoice:
    """Choose what is read of each side, which is one row.

    Args:
        tokens: ``last``, ``text``, ``mean`` or an index.
        role: Whose turn a side without a prompt is under a template.

    Raises:
        UsageError: There is no such role, or the tokens are several, or chosen by a
            function, which an artifact cannot record.
    """
    check_word("role", role, ROLES)
    return ReadingChoice(tokens=choose_one_row(tokens), role=role)


def note_reading(choice: ReadingChoice, pairs: PairSet) -> dict[str, str]:
    """Say in metadata what was read of each side, where that is not usual.

    ``prompts`` says whether ``all`` pairs or ``some`` were answers to a prompt.
    """
    read = {
        "tokens": choice.tokens.words,
        "role": choice.role,
        "prompts": _with_prompts(pairs),
    }
    usual = {
        "tokens": LAST_ROWS.tokens.words,
        "role": LAST_ROWS.role,
        "prompts": "none",
    }
    return {name: word for name, word in read.items() if word != usual[name]}


def reading_of(vector: SteeringVector) -> ReadingChoice:
    """Return what was read of the pairs that a vector was fitted to.

    Metadata are free words; those that choose no one row count as absent.
    """
    metadata = vector.metadata
    role = metadata.get("role", LAST_ROWS.role)
    try:
        return choose_reading(metadata.get("tokens", "last"), role)
    except UsageError:
        return LAST_ROWS


def choose_as_trained(
    session: Session, vector: SteeringVector, tokens: Tokens | None, role: str | None
) -> ReadingChoice:
    """Choose what is read for a vector: what it was fitted to, unless told otherwise.

    What differs is warned of.

    Raises:
        UsageError: As for ``choose_reading``.
    """
    trained = reading_of(vector)
    choice = choose_reading(
        trained.tokens.words if tokens is None else tokens,
        trained.role if role is None else role,
    )
    before, now = (
        f"tokens {each.tokens.words} of the {each.role}'s turn"
        for each in (trained, choice)
    )
    if before != now:
        session.reporter.warn(
            f"this direction was trained on {before} and this run reads {now}, so the "
            "numbers below describe tokens it was not trained on"
        )
    return choice


def warn_of_prompts(session: Session, vector: SteeringVector, pairs: PairSet) -> None:
    """Warn where a vector was fitted to answers to prompts and is not measured on such.

    Or the other way round. A vector that was not fitted to pairs here passes.
    """
    before = vector.metadata.get("prompts", "none")
    now = _with_prompts(pairs)
    if "pair_count" in vector.metadata and (before == "none") != (now == "none"):
        one, other = (
            "without a prompt" if each == "none" else "that answer a prompt"
            for each in (before, now)
        )
        session.reporter.warn(
            f"this direction was trained on sides {one} and this run reads sides "
            f"{other}, so the numbers below describe texts it was not trained on"
        )


def _with_prompts(pairs: PairSet) -> str:
    without = [pair.prompt for pair in pairs].count(None)
    return "none" if without == len(pairs) else "some" if without else "all"


def plan_pairs(
    session: Session,
    pairs: PairSet,
    layers: tuple[int, ...],
    *,
    repeats: bool,
    choice: ReadingChoice = LAST_ROWS,
    deltas: Deltas | None = None,
) -> Reading:
    """Encode both sides of all pairs and plan their reading; see ``plan_reading``.

    Raises:
        SterError: A side is refused or the run does not fit.
    """
    prompts, asked = pairs.to_read()
    return plan_reading(
        session,
        prompts,
        layers,
        repeats=repeats,
        # Described, for trivial features are looked for in the sides' own tokens.
        choice=replace(choice, asked=asked, describe=True),
        deltas=deltas,
        label="reading pair",
        prompts_per_item=2,
    )


def read_pairs(reading: Reading) -> PairRows:
    """Read what was planned.

    Raises:
        SterError: As for ``Reading.waves``.
    """
    gathering = Gathering(reading)
    for _, arrays in reading.waves():
        gathering.add(arrays)
        del arrays  # or they would be there beside the next wave's
    (rows,) = gathering.arrays()
    return PairRows(positive=rows[0::2], negative=rows[1::2])
