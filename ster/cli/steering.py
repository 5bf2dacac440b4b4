"""What steers: ``--vector FILE`` or ``FILE:STRENGTH``, and strengths for their sum."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ster.errors import UsageError
from ster.text import one_line
from ster.vectors.strengths import Strength, parse_strengths, take_strengths

if TYPE_CHECKING:
    from ster.vectors.steering import SteeringVector


def split_vector(word: str) -> tuple[str, Strength | None]:
    """Split a path from the strength after its last colon; a file's own name wins.

    Returns:
        The path, and the strength if there is one.

    Raises:
        UsageError: There is no such file, and what follows the colon is no strength.
    """
    path, colon, tail = word.rpartition(":")
    if not (colon and path) or os.path.exists(word):
        return word, None
    try:
        return path, parse_one_strength(tail)
    except UsageError as error:
        cause = f"there is no file {one_line(word)}: its last colon begins a strength"
        raise UsageError(
            error.sentence, cause, *error.causes, field="--vector", found=word
        ) from error


def take_whole(command: str, instead: str) -> Callable[[str], str]:
    """Return what refuses a vector with a strength of its own.

    Args:
        command: Which takes one as it is.
        instead: The flag that says how much of it, and the rest of that sentence.
    """

    def check(word: str) -> str:
        try:
            path, strength = split_vector(word)
        except UsageError:  # then it is a path that is not there
            return word
        if strength is not None:
            flag, says = instead.split(" ", 1)
            raise UsageError(
                f"`{command}` takes one vector as it is, without :{strength}",
                f"--vector {one_line(path)} {flag} {strength} {says}",
                field="--vector",
                found=word,
            )
        return word

    return check


def check_strength(word: str) -> str:
    """Refuse what is no strength, as a flag's callback."""
    parse_one_strength(word)
    return word


def parse_one_strength(word: str) -> Strength:
    """Read one strength of a command line.

    Raises:
        UsageError: It is none, or not finite.
    """
    (strength,) = take_strengths([word])
    check_finite([strength])
    return strength


def parse_several_strengths(words: str) -> tuple[Strength, ...]:
    """Read a comma list of at least one strength.

    Raises:
        UsageError: There is none, or one is no strength or not finite.
    """
    strengths = parse_strengths(words)
    if not strengths:
        raise UsageError("there is no strength to answer at", field="--strengths")
    check_finite(strengths)
    return strengths


def check_finite(strengths: Iterable[Strength]) -> None:
    """Refuse a strength that is no number.

    Raises:
        UsageError: One is infinite, or none.
    """
    for strength in strengths:
        if not math.isfinite(strength.value):
            raise UsageError(
                f"strength must be finite, not {strength.value}",
                field="--strength",
                found=strength.value,
            )


def check_norms_once(vectors: Sequence[str], strengths: Sequence[Strength]) -> None:
    """Refuse strengths in norms of a vector whose own strength is in norms.

    Raises:
        UsageError: They would count in residual norms twice.
    """
    for word in vectors:
        _, own = split_vector(word)
        if own is not None:
            for strength in strengths:
                _ = own * strength


def load_vectors(words: Sequence[str]) -> list[tuple[SteeringVector, Strength]]:
    """Read steering artifacts, each with its strength, which is 1 if none is given.

    Raises:
        SterError: A word or an artifact is refused.
    """
    from ster.vectors.steering import SteeringVector

    loaded = []
    for word in words:
        path, strength = split_vector(word)
        vector = replace(SteeringVector.load(path), source=path)
        loaded.append((vector, strength or Strength(value=1.0)))
    return loaded
