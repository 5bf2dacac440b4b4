"""The ``--tokens`` grammar, and what notebooks may give in its place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ster.errors import PromptError, UsageError
from ster.token_choice import choose_one_row, choose_tokens, parse_tokens


def chosen(words: object, num_tokens: int = 6, own=(2, 5)) -> list[int]:
    choice = choose_tokens(words)  # type: ignore[arg-type]
    return [*choice.positions(num_tokens, own, 1, None)]


@pytest.mark.parametrize(
    ("words", "positions"),
    [
        ("last", [5]),
        ("text", [4]),
        ("all", [0, 1, 2, 3, 4, 5]),
        ("mean", [2, 3, 4]),
        (" last ", [5]),
        ("0", [0]),
        ("-1", [5]),
        ("+2,0, -1", [0, 2, 5]),
        ("1..3", [1, 2]),
        ("-3..", [3, 4, 5]),
        ("..2", [0, 1]),
        ("..", [0, 1, 2, 3, 4, 5]),
        ("1..99", [1, 2, 3, 4, 5]),
        ("0,0,0..2,,", [0, 1]),
        (-2, [4]),
        (np.int64(3), [3]),
        ([0, -1], [0, 5]),
        (range(1, 3), [1, 2]),
        (slice(-2, None), [4, 5]),
        (np.array([4, 1]), [1, 4]),
        (lambda tokens: [True, False, False, True, False, False], [0, 3]),
        (lambda tokens: [1, -1], [1, 5]),
        (lambda tokens: slice(2, 4), [2, 3]),
        (lambda tokens: np.arange(6) > 3, [4, 5]),
    ],
)
def test_a_choice_is_ascending_positions_each_once(words, positions):
    assert chosen(words) == positions


@given(
    picks=st.lists(st.integers(-8, 7), min_size=1),
    num_tokens=st.integers(8, 20),
)
def test_indices_mean_what_they_mean_to_a_list(picks, num_tokens):
    places = range(num_tokens)
    expected = sorted({places[pick] for pick in picks})
    assert chosen(picks, num_tokens) == expected
    assert chosen(",".join(map(str, picks)), num_tokens) == expected


@given(
    start=st.none() | st.integers(-30, 30),
    stop=st.none() | st.integers(-30, 30),
    num_tokens=st.integers(1, 20),
)
def test_ranges_mean_what_they_mean_to_a_list(start, stop, num_tokens):
    expected = [*range(num_tokens)[start:stop]]
    words = f"{'' if start is None else start}..{'' if stop is None else stop}"
    if expected:
        assert chosen(words, num_tokens) == expected
    else:
        with pytest.raises(PromptError, match="are none of the"):
            chosen(words, num_tokens)


@given(
    start=st.none() | st.integers(-5, 5),
    stop=st.none() | st.integers(-5, 5),
)
def test_a_range_is_one_row_if_it_has_no_two_in_a_text_of_any_length(start, stop):
    most = max(len(range(length)[start:stop]) for length in range(20))
    assert choose_tokens(slice(start, stop)).is_one == (most < 2)


@pytest.mark.parametrize("words", ["last", "text", "mean", "-2", "0", 3, "-1..", [1]])
def test_what_is_one_row_of_a_side_is_taken(words):
    assert choose_one_row(words) == choose_tokens(words)


@pytest.mark.parametrize(
    "words", ["all", "0,1", "0..2", "-3..", "..", [0, 0], len, slice(1, None)]
)
def test_what_may_be_several_rows_of_a_side_is_refused(words):
    with pytest.raises(UsageError, match="are not one row of each side of a pair; las"):
        choose_one_row(words)


@pytest.mark.parametrize(
    "words",
    [
        *("", ",", "first", "1..=3", "1:3", "1_0", "1.5", "- 1", "...", "１"),
        *(True, [], [True, 2], None, 1.0, ["0"], slice(0, 4, 2), {"a": 1}),
    ],
)
def test_anything_else_is_no_choice(words):
    with pytest.raises(UsageError, match="unknown tokens .*; expected last, text, all"):
        choose_tokens(words)


@pytest.mark.parametrize("mask", [[True], [False] * 5 + [True] * 2, np.array([True])])
def test_a_mask_of_another_length_is_refused(mask):
    with pytest.raises(UsageError, match="is none of 6"):
        chosen(lambda tokens: mask)
    with pytest.raises(UsageError, match="is none of any"):
        choose_tokens(mask)


def test_an_index_that_a_prompt_lacks_is_refused_with_its_number():
    choice = parse_tokens("0,6")
    with pytest.raises(PromptError) as refused:
        choice.positions(6, None, 3, None)
    assert str(refused.value) == "prompt 3 has 6 tokens, so there is no token 6"
    assert (refused.value.prompt, refused.value.found) == (3, 6)


@pytest.mark.parametrize("words", ["text", "mean"])
def test_own_tokens_that_are_not_known_are_refused(words):
    with pytest.raises(PromptError, match="changes the text of prompt 2") as refused:
        parse_tokens(words).positions(6, None, 2, None)
    assert refused.value.prompt == 2


def test_the_words_of_a_choice_say_what_was_given():
    def verbs(tokens: object) -> list[int]:
        return [0]

    assert choose_tokens([0, -1]).words == "0,-1"
    assert choose_tokens(slice(-3, None)).words == "-3.."
    assert choose_tokens("0, 2..4").words == "0,2..4"
    assert choose_tokens(verbs).words == "chosen by verbs"
