"""How prompts are answered, and how logits become a token: pure functions of numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from ster.decoder.sampling import Drawing
from ster.documents.prompts import check_text
from ster.errors import (
    PromptError,
    UsageError,
    require_number,
    require_seed,
    require_type,
    require_whole_number,
)

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is chosen.

    Args:
        temperature: Divides the logits; 0 or less takes the likeliest token.
        top_p: Keep the fewest likeliest tokens whose mass reaches this; None keeps all.
        seed: Same seed, same device, same text.

    Raises:
        UsageError: A number is out of its range.
    """

    temperature: float = 0.0
    top_p: float | None = None
    seed: int = 42

    def __post_init__(self) -> None:
        """Refuse numbers that no token can be drawn with."""
        if not math.isfinite(require_number(self.temperature, "temperature")):
            sentence = f"temperature must be finite, not {self.temperature}"
            raise UsageError(sentence, field="temperature", found=self.temperature)
        if self.top_p is not None and not 0 < require_number(self.top_p, "top_p") <= 1:
            sentence = f"top-p must be above zero and at most one, not {self.top_p}"
            raise UsageError(sentence, field="top_p", found=self.top_p)
        require_seed(self.seed)


class AnsweringKeywords(TypedDict, total=False):
    """The keywords of methods that answer, beside the prompt and the steering.

    A call gives either ``answering`` or its parts, and either ``sampling`` or its
    parts. Parts that are not given have the defaults of ``Answering`` and ``Sampling``.
    """

    answering: Answering
    system: str | None
    max_new_tokens: int
    sampling: Sampling | None
    temperature: float
    top_p: float | None
    seed: int


_SAMPLING = tuple(each.name for each in fields(Sampling))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """How prompts are answered.

    Args:
        system: The system's message before a prompt; needs the model's chat template.
        max_new_tokens: At most this many.
        sampling: How tokens are chosen; the likeliest each time unless given.

    Raises:
        PromptError: There would be no token, or the system's message is no text.
        UsageError: A part is of another type.
    """

    system: str | None = None
    max_new_tokens: int = 128
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        """Refuse values that no prompt can be answered with."""
        if self.system is not None:
            check_text(self.system, "system")
        if require_whole_number(self.max_new_tokens, "max_new_tokens") < 1:
            raise PromptError(
                "max_new_tokens must be greater than zero",
                field="max_new_tokens",
                found=self.max_new_tokens,
            )
        require_type(self.sampling, Sampling, "sampling")

    @classmethod
    def of(cls, **keywords: Unpack[AnsweringKeywords]) -> Answering:
        """Make one from the keywords of a method that answers.

        Raises:
            SterError: As for the class and ``Sampling``; or ``answering`` or
                ``sampling`` is given together with one of its parts.
            TypeError: There is no such keyword.
        """
        words: dict[str, Any] = dict(keywords)
        unknown = words.keys() - AnsweringKeywords.__annotations__.keys()
        if unknown:
            raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
        if "answering" in words:
            _refuse_both("answering", words)
            require_type(words["answering"], cls, "answering")
            answering: Answering = words["answering"]
            return answering
        parts = {name: words.pop(name) for name in _SAMPLING if name in words}
        if words.get("sampling") is None:
            words["sampling"] = Sampling(**parts)
        else:
            _refuse_both("sampling", parts)
        return cls(**words)


def _refuse_both(whole: str, parts: Mapping[str, object]) -> None:
    for name in sorted(parts.keys() - {whole}):
        sentence = f"give either {whole} or {name}, not both"
        raise UsageError(sentence, field=name, found=parts[name])


def make_drawing(
    sampling: Sampling, randoms: Sequence[np.random.Generator]
) -> Drawing | None:
    """Say how the next tokens of texts are drawn; None where the likeliest is taken.

    Args:
        sampling: How.
        randoms: Of each text, its own; moves on by one number.
    """
    if sampling.temperature <= 0:
        return None
    at = np.array([random.random() for random in randoms])
    return Drawing(temperature=sampling.temperature, top_p=sampling.top_p, at=at)


def make_sampler(sampling: Sampling) -> Callable[[F32], int]:
    """Return the function that chooses a token from a step's logits, (vocab_size,)."""
    require_type(sampling, Sampling, "sampling")
    random = np.random.default_rng(sampling.seed)

    def sample(logits: F32) -> int:
        drawing = make_drawing(sampling, [random])
        return int(logits.argmax()) if drawing is None else drawing.draw(logits, 0)

    return sample
