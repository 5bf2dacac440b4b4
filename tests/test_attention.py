"""Attention's index arrays, against who may see whom by the prompts themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ster.stream.attention import (
    MAX_QUERIES,
    MIN_QUERIES,
    ROUNDING,
    Attention,
    plan_attention,
)
from ster.stream.packing import Ints, PackedPrompts, pack_prompts

PROMPTS = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=20), min_size=1, max_size=8
)
MANY = 1 << 20
WINDOWS = st.none() | st.integers(1, 24)
MAX_PAIRS = st.sampled_from([1, 64, 300, 4000, 1 << 20])


def pack(prompts: list[list[int]]) -> PackedPrompts:
    return pack_prompts(prompts, [0] * len(prompts))


def visible(packed: PackedPrompts, row: int, window: int | None) -> set[int]:
    """Return the rows of the tokens before a row and its own, by walking up."""
    before: list[int] = []
    for segment in packed.segments:
        last = packed.segments[segment.parent].stop - 1 if segment.parent >= 0 else -1
        before += [last, *range(segment.start, segment.stop - 1)]
    chain = []
    while row >= 0:
        chain.append(row)
        row = before[row]
    return set(chain[:window])


def seen(attention: Attention[Ints]) -> Iterator[tuple[int, list[int]]]:
    """Yield, as laid end to end, each place's query and the rows that it sees."""
    for batch in attention.batches:
        assert batch.keys is not None
        gaps = batch.query_positions[:, :, None] - batch.key_positions[:, None, :]
        sees = gaps >= 0
        if attention.window is not None:
            sees &= gaps < attention.window
        for group, queries in enumerate(batch.queries):
            for place, query in enumerate(queries):
                yield int(query), batch.keys[group, sees[group, place]].tolist()


def check(packed: PackedPrompts, attention: Attention[Ints]) -> None:
    """Check that every query stands once in order and sees what it should."""
    rows = np.arange(packed.num_tokens) if attention.rows is None else attention.rows
    places = list(seen(attention))
    assert [places[place][0] for place in attention.order] == list(range(len(rows)))
    # Padding queries too: theirs may be the result that is taken.
    for query, keys in places:
        assert len(set(keys)) == len(keys)
        assert set(keys) == visible(packed, int(rows[query]), attention.window)


@given(PROMPTS, WINDOWS, MAX_PAIRS)
def test_every_query_sees_its_ancestors_and_itself(prompts, window, max_pairs):
    packed = pack(prompts)
    check(
        packed,
        plan_attention(packed, window=window, max_pairs=max_pairs, max_keys=MANY),
    )


@given(PROMPTS, WINDOWS, MAX_PAIRS)
def test_wanted_rows_see_what_they_see_among_all(prompts, window, max_pairs):
    packed = pack(prompts)
    rows = np.unique(packed.last_rows)
    check(
        packed,
        plan_attention(
            packed, window=window, max_pairs=max_pairs, max_keys=MANY, rows=rows
        ),
    )


@given(PROMPTS, st.data())
def test_any_rows_may_be_wanted(prompts, data):
    packed = pack(prompts)
    numbers = st.sets(st.integers(0, packed.num_tokens - 1), min_size=1)
    rows = np.array(sorted(data.draw(numbers)), np.int64)
    check(
        packed,
        plan_attention(packed, window=None, max_pairs=300, max_keys=MANY, rows=rows),
    )


@pytest.mark.parametrize("window", [None, 1, 100, 700])
@pytest.mark.parametrize("max_pairs", [1, 20_000, 1 << 20])
def test_a_long_prompt_is_cut_and_sees_all_the_same(window, max_pairs):
    packed = pack([[n % 5 for n in range(700)], [0, 1, 2, 9]])
    check(
        packed,
        plan_attention(packed, window=window, max_pairs=max_pairs, max_keys=MANY),
    )


@pytest.mark.parametrize("max_pairs", [1, 1000, 5000, 20_000, 33_333, 1 << 20])
@pytest.mark.parametrize("window", [None, 64])
def test_a_batch_holds_as_many_pairs_as_it_may_or_one_small_piece(max_pairs, window):
    prompts = [[-length] * length for length in range(1, 600, 13)]
    prompts += [[8, n, n, n] for n in range(300)]
    packed = pack(prompts)
    for batch in plan_attention(
        packed, window=window, max_pairs=max_pairs, max_keys=MANY
    ).batches:
        num_groups, num_queries = batch.queries.shape
        pairs = num_groups * num_queries * batch.key_positions.shape[1]
        small = num_groups == 1 and num_queries <= MIN_QUERIES
        assert pairs <= max_pairs or small
        assert num_queries <= MAX_QUERIES


def test_a_window_bounds_the_keys_of_a_long_prompt():
    packed = pack([[3] * 5000])
    attention = plan_attention(packed, window=16, max_pairs=1 << 20, max_keys=MANY)
    most = max(batch.key_positions.shape[1] for batch in attention.batches)
    assert most <= MAX_QUERIES + 16 + ROUNDING


def test_many_short_prompts_need_few_batches():
    packed = pack([[5, 6, n, n + 1] for n in range(1000)])
    attention = plan_attention(packed, window=None, max_pairs=1 << 20, max_keys=MANY)
    assert len(attention.batches) <= 2


@pytest.mark.parametrize("max_keys", [1, 40, 100, 1000])
def test_a_batch_gathers_as_many_keys_as_it_may_or_those_of_one_group(max_keys):
    packed = pack([[0] * 30 + [1, n, n] for n in range(2, 60)])
    rows = np.unique(packed.last_rows)
    attention = plan_attention(
        packed, window=None, max_pairs=MANY, max_keys=max_keys, rows=rows
    )
    check(packed, attention)
    sizes = [batch.key_positions.shape for batch in attention.batches]
    assert all(groups == 1 or groups * keys <= max_keys for groups, keys in sizes)
    assert sizes[0][0] == max(1, max_keys // 36)


def test_shapes_are_rounded_and_padding_keys_stand_after_every_query():
    packed = pack([[1, 2, 3]])
    (batch,) = plan_attention(
        packed, window=None, max_pairs=1 << 20, max_keys=MANY
    ).batches
    assert batch.queries.tolist() == [[0, 1, 2, 0]]
    assert batch.keys is not None
    assert batch.keys[0, :3].tolist() == [0, 1, 2]
    assert batch.query_positions.tolist() == [[0, 1, 2, 0]]
    assert batch.key_positions.tolist() == [[0, 1, 2, 3]]


def test_rows_and_window_are_handed_on():
    packed = pack([[1, 2], [1, 3]])
    rows = np.array([1, 2])
    attention = plan_attention(
        packed, window=5, max_pairs=100, max_keys=MANY, rows=rows
    )
    assert attention.rows is rows
    assert attention.window == 5
    assert (
        plan_attention(packed, window=None, max_pairs=100, max_keys=MANY).rows is None
    )


def test_the_lists_of_a_long_prompt_do_not_grow_with_its_square():
    """Its pieces look at one list of rows and one of positions."""
    packed = pack([list(range(20_000))])
    attention = plan_attention(packed, window=None, max_pairs=1 << 16, max_keys=MANY)
    assert len(attention.batches) == 625
    for batch in attention.batches:
        assert batch.keys is not None
        for listed in (batch.keys, batch.key_positions):
            assert listed.base is not None
            assert listed.base.size <= 20_000 + 2 * ROUNDING
