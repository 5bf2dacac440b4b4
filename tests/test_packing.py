"""The token trie: every distinct prefix once, each prompt's last token found again."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ster.stream.packing import (
    DistinctTokens,
    PackedPrompts,
    Segment,
    pack_marked,
    pack_prompts,
)

Prompts = list[list[int]]
# Few tokens and few lengths, so that prompts share often.
PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7), min_size=1)


def pack(*prompts: list[int], rotary: list[int] | None = None) -> PackedPrompts:
    return pack_prompts(prompts, rotary or [0] * len(prompts))


def parents(packed: PackedPrompts) -> list[int]:
    """Return the row before each row in its prompts, -1 at the beginning."""
    rows: list[int] = []
    for segment in packed.segments:
        before = packed.segments[segment.parent].stop - 1 if segment.parent >= 0 else -1
        rows += [before, *range(segment.start, segment.stop - 1)]
    return rows


def path(packed: PackedPrompts, row: int) -> list[int]:
    """Return the token ids from the beginning to a row."""
    before, tokens = parents(packed), []
    while row >= 0:
        tokens.append(int(packed.token_ids[row]))
        row = before[row]
    return tokens[::-1]


def distinct_prefixes(prompts: Prompts, rotary: list[int]) -> set[tuple[int, ...]]:
    return {
        (length, *prompt[: stop + 1])
        for prompt, length in zip(prompts, rotary, strict=True)
        for stop in range(len(prompt))
    }


def with_lengths(prompts: Prompts, seed: int) -> list[int]:
    return [(seed >> (len(prompt) + prompt[0])) & 1 for prompt in prompts]


@given(PROMPTS, st.integers(0, 2**10))
def test_a_prompt_is_the_path_to_its_last_row(prompts, seed):
    rotary = with_lengths(prompts, seed)
    packed = pack_prompts(prompts, rotary)
    assert [path(packed, int(row)) for row in packed.last_rows] == prompts
    assert packed.rotary_lengths[packed.last_rows].tolist() == rotary


@given(PROMPTS, st.integers(0, 2**10))
def test_every_distinct_prefix_has_one_row(prompts, seed):
    rotary = with_lengths(prompts, seed)
    packed = pack_prompts(prompts, rotary)
    rows = [
        (int(packed.rotary_lengths[row]), *path(packed, row))
        for row in range(packed.num_tokens)
    ]
    assert len(set(rows)) == len(rows)
    assert set(rows) == distinct_prefixes(prompts, rotary)


@given(PROMPTS, st.integers(0, 2**10))
def test_rows_ascend_by_segment_and_parents_come_first(prompts, seed):
    packed = pack_prompts(prompts, with_lengths(prompts, seed))
    assert packed.segments[0].start == 0
    assert packed.segments[-1].stop == packed.num_tokens
    assert all(a.stop == b.start for a, b in pairwise(packed.segments))
    for index, segment in enumerate(packed.segments):
        assert segment.stop > segment.start
        assert -1 <= segment.parent < index
    for row, before in enumerate(parents(packed)):
        position = packed.position_ids[before] + 1 if before >= 0 else 0
        assert packed.position_ids[row] == position


@given(PROMPTS, st.integers(0, 2**10))
def test_the_count_of_distinct_tokens_is_the_size_of_the_stream(prompts, seed):
    rotary = with_lengths(prompts, seed)
    distinct, total = DistinctTokens(), 0
    for index, (prompt, length) in enumerate(zip(prompts, rotary, strict=True)):
        total += distinct.add(prompt, length)
        so_far = pack_prompts(prompts[: index + 1], rotary[: index + 1])
        assert total == so_far.num_tokens


@given(PROMPTS, st.randoms())
def test_the_stream_does_not_depend_on_the_order_of_prompts(prompts, random):
    order = list(range(len(prompts)))
    random.shuffle(order)
    packed = pack(*prompts)
    shuffled = pack(*(prompts[i] for i in order))
    assert shuffled.token_ids.tolist() == packed.token_ids.tolist()
    assert shuffled.segments == packed.segments
    assert shuffled.last_rows.tolist() == packed.last_rows[order].tolist()


@given(PROMPTS)
def test_the_rows_of_a_prompt_are_its_tokens_in_order(prompts):
    packed = pack(*prompts)
    for index, prompt in enumerate(prompts):
        rows = packed.rows_of(index)
        assert packed.token_ids[rows].tolist() == prompt
        assert packed.position_ids[rows].tolist() == list(range(len(prompt)))
        assert rows[-1] == packed.last_rows[index]


def test_a_shared_prefix_is_stored_once():
    packed = pack([7, 8, 1, 2], [7, 8, 3])
    assert packed.token_ids.tolist() == [7, 8, 1, 2, 3]
    assert packed.position_ids.tolist() == [0, 1, 2, 3, 2]
    assert packed.segments == (
        Segment(start=0, stop=2, parent=-1),
        Segment(start=2, stop=4, parent=0),
        Segment(start=4, stop=5, parent=0),
    )
    assert packed.last_rows.tolist() == [3, 4]


def test_equal_prompts_cost_one():
    packed = pack([5, 6], [5, 6], [5, 6])
    assert packed.token_ids.tolist() == [5, 6]
    assert packed.last_rows.tolist() == [1, 1, 1]


def test_a_prompt_may_be_the_prefix_of_another():
    packed = pack([5, 6, 7], [5])
    assert packed.token_ids.tolist() == [5, 6, 7]
    assert packed.last_rows.tolist() == [2, 0]


def test_prompts_of_one_token_are_rows_of_their_own():
    packed = pack([9], [4], [9])
    assert packed.token_ids.tolist() == [4, 9]
    assert packed.last_rows.tolist() == [1, 0, 1]
    assert packed.position_ids.tolist() == [0, 0]


def test_prompts_with_different_rotary_lengths_share_nothing():
    packed = pack([5, 6], [5, 6], rotary=[64, 65])
    assert packed.token_ids.tolist() == [5, 6, 5, 6]
    assert packed.rotary_lengths.tolist() == [64, 64, 65, 65]
    assert packed.last_rows.tolist() == [1, 3]


@pytest.mark.parametrize("descending", [False, True])
def test_a_long_chain_of_prefixes_does_not_recurse(descending):
    whole = [token % 7 for token in range(3000)]
    prompts = [whole[: n + 1] for n in range(3000)]
    packed = pack(*(prompts[::-1] if descending else prompts))
    assert packed.token_ids.tolist() == whole
    rows = list(range(3000))
    assert packed.last_rows.tolist() == (rows[::-1] if descending else rows)
    distinct = DistinctTokens()
    assert sum(distinct.add(prompt, 0) for prompt in prompts) == 3000


def test_one_long_prompt_is_counted_and_forgotten_without_recursion():
    distinct = DistinctTokens()
    assert distinct.add([3] * 200_000, 0) == 200_000
    del distinct


def test_arrays_are_indices():
    packed = pack([1, 2], [1])
    for array in (
        packed.token_ids,
        packed.position_ids,
        packed.rotary_lengths,
        packed.last_rows,
    ):
        assert array.dtype == np.int64


MARKED = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=7),
    min_size=1,
)


@given(MARKED)
def test_tokens_are_shared_where_they_and_all_before_them_are_marked_alike(texts):
    prompts = [[token for token, _ in each] for each in texts]
    marks = [np.array([mark for _, mark in each]) for each in texts]
    packed, found = pack_marked(prompts, [0] * len(texts), marks)
    for number, each in enumerate(texts):
        rows = packed.rows_of(number)
        assert packed.token_ids[rows].tolist() == prompts[number]
        assert packed.position_ids[rows].tolist() == [*range(len(each))]
        assert found[rows].tolist() == marks[number].tolist()
    prefixes = {tuple(each[: stop + 1]) for each in texts for stop in range(len(each))}
    assert packed.num_tokens == len(prefixes)
