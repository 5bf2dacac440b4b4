"""Where the keys of texts lie that grow together, against the obvious lists."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ster.stream.packing import pack_prompts
from ster.stream.texts import MIN_STEM, NextTokens, Texts

LONG = list(range(MIN_STEM))
PROMPTS = [[*LONG, 50, 51], [*LONG, 50, 52, 53], [*LONG, 60], [70], [*LONG, 60]]


def entered(prompts: list[list[int]]) -> tuple[Texts, dict[int, list[int]], dict]:
    """Return texts, their tokens by slot, and the tokens of stems by number."""
    texts, packed = Texts(), pack_prompts(prompts, [0] * len(prompts))
    entering = texts.enter(packed)
    stems = {each.number: packed.token_ids[each.rows] for each in entering.stems}
    own = {
        entering.first + n: [*packed.token_ids[rows]]
        for n, rows in enumerate(entering.rows)
    }
    return texts, own, stems


def seen_tokens(
    text: int, following: NextTokens, own: dict[int, list[int]], stems: dict
) -> list[int]:
    """List the tokens that a text's new one sees, in the order of their columns."""
    columns: list[int | None] = [None] * following.num_stem_keys
    for stem in following.stems:
        if text in stem.texts:
            columns[stem.start : stem.stop] = [*stems[stem.number]]
    columns += (own[text] + [None] * following.num_own_keys)[: following.num_own_keys]
    seen = following.seen
    is_seen = [True] * len(columns) if seen is None else seen[text]
    found = [token for token, yes in zip(columns, is_seen, strict=True) if yes]
    assert None not in found
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("window", [None, 1, 3, 18])
def test_a_new_token_sees_the_tokens_of_its_text(window):
    texts, own, stems = entered(PROMPTS)
    texts.grow()
    for n, prompt in enumerate(PROMPTS):
        length = int(texts.next_tokens(None).lengths[n])
        own[n] = [*own[n][: length - 1], 100 + n]
        whole = [*prompt, 100 + n]
        expected = whole if window is None else whole[-window:]
        assert seen_tokens(n, texts.next_tokens(window), own, stems) == expected
    assert texts.positions.tolist() == [len(prompt) for prompt in PROMPTS]


def test_what_several_texts_begin_with_is_held_once():
    texts, own, stems = entered(PROMPTS)
    assert [[*each] for each in stems.values()] == [LONG, [60]][: len(stems)]
    held = sum(map(len, stems.values()))
    held += int(texts.next_tokens(None).lengths.sum())
    # All but the last of the equal prompts' short endings lie once.
    assert held <= sum(map(len, PROMPTS)) - 3 * MIN_STEM
    del own


def test_a_short_beginning_is_held_with_each_text():
    _, own, stems = entered([[1, 2, 3], [1, 2, 4]])
    assert not stems
    assert [own[0][:3], own[1][:3]] == [[1, 2, 3], [1, 2, 4]]


def test_a_lone_text_that_sees_everything_needs_no_mask():
    texts, _, _ = entered([[1, 2, 3]])
    texts.grow()
    assert texts.next_tokens(None).seen is None
    assert texts.next_tokens(4).seen is None
    seen: Any = texts.next_tokens(3).seen
    assert seen.tolist() == [[False, True, True, True]]


@given(
    st.lists(
        st.lists(st.integers(0, 1), min_size=1, max_size=40), min_size=1, max_size=8
    ),
    st.sets(st.integers(0, 7)),
    st.data(),
)
def test_texts_keep_their_keys_while_others_leave(prompts, gone, data):
    shared = data.draw(st.lists(st.integers(0, 1), max_size=40))
    prompts = [[*shared, *prompt] for prompt in prompts]
    texts, own, stems = entered(prompts)
    gone = {each for each in gone if each < len(prompts)}
    lengths = texts.next_tokens(None).lengths
    own = {n: own[n][: lengths[n]] for n in own}
    leaving = texts.leave(gone)
    for source, target in leaving.moves:
        own[target] = own[source]
    for stem in leaving.stems:
        del stems[stem]
    left = [n for n in range(len(prompts)) if n not in gone]
    assert sorted(leaving.order) == left
    assert len(texts) == len(left)
    if not left:
        return
    texts.grow()
    following = texts.next_tokens(None)
    assert {stem.number for stem in following.stems} == stems.keys()
    for place, number in enumerate(leaving.order):
        own[place] = [*own[place][: following.lengths[place] - 1], 9]
        expected = [*prompts[number], 9]
        assert seen_tokens(place, following, own, stems) == expected
        assert texts.positions[place] == len(prompts[number])
