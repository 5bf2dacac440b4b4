"""Lists of prompts, and what is refused of them."""

from __future__ import annotations

import pytest

from ster.documents.prompts import check_prompts
from ster.errors import PromptError


@pytest.mark.parametrize("blank", ["", " ", "\t\r\n", "\u3000", "\u0085", "\u2028\v\f"])
def test_blank_prompts_are_refused(blank: str):
    with pytest.raises(
        PromptError, match="^prompt must not be empty: prompt 2 is blank$"
    ):
        check_prompts(["a", blank])


@pytest.mark.parametrize(
    ("prompts", "sentence"),
    [
        ([], "prompt set contains no prompts"),
        ("hello", "prompts must be a list of strings, not one string"),
        ([b"a"], "a prompt must be a string, not bytes"),
        ([None], "a prompt must be a string, not NoneType"),
        (["a\ud800"], "failed to tokenize prompt: lone surrogate at character 1"),
    ],
)
def test_library_callers_are_refused_too(prompts: list[str], sentence: str):
    with pytest.raises(PromptError) as refusal:
        check_prompts(prompts)
    assert str(refusal.value) == sentence


def test_library_callers_may_hand_over_any_iterable():
    assert check_prompts(p for p in ("a", "b")) == ["a", "b"]
