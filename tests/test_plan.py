"""Plans are arithmetic: waves cover the prompts in order and fit into the memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ster.decoder.contract import Footprint
from ster.errors import CapacityError
from ster.runs.plan import (
    ENOUGH_TOKENS,
    WAVE_TOKENS,
    Budget,
    ExtractionPlan,
    megabytes,
    plan_extraction,
    split_waves,
)
from ster.stream.packing import pack_prompts

FOOTPRINT = Footprint(
    block_bytes=1000, open_bytes=1500, token_bytes=10, row_bytes=4, fixed_bytes=100
)
# What a run of one token and one layer takes: weights, scratch, a token, a row.
LEAST = 1500 + 100 + 10 + 4
AMPLE = 10**12
PROMPTS = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=20
)


def plan(prompts: list[list[int]], **changes: object) -> ExtractionPlan:
    words: dict[str, Any] = {"num_blocks": 3, "keep_resident": False}
    given = {name: changes.pop(name) for name in words if name in changes}
    return plan_extraction(
        prompts, [0] * len(prompts), budget=budget(**changes), **(words | given)
    )


def budget(**changes: Any) -> Budget:
    words = {"num_layers": 1, "held_bytes": 0, "memory_bytes": AMPLE}
    return Budget(**({"footprint": FOOTPRINT} | words | changes))


def distinct(prompts: list[list[int]]) -> int:
    return pack_prompts(prompts, [0] * len(prompts)).num_tokens


def long_prompts(count: int, length: int = 100) -> list[list[int]]:
    """Make prompts that share nothing."""
    return [[number] * length for number in range(count)]


@given(
    PROMPTS,
    st.integers(0, 8000),
    st.integers(0, 3000),
    st.booleans(),
    st.integers(1, 40),
)
def test_a_plan_fits_and_covers_all_prompts(prompts, memory, held, keep, num_layers):
    longest = max(map(len, prompts))
    least = held + 1600 + 10 * longest + 4 * num_layers
    words: dict[str, Any] = {
        "memory_bytes": memory,
        "held_bytes": held,
        "keep_resident": keep,
        "num_layers": num_layers,
    }
    if least > memory:
        with pytest.raises(CapacityError):
            plan(prompts, **words)
        return
    made = plan(prompts, **words)
    assert made.peak_bytes <= made.memory_bytes == memory
    assert [i for wave in made.waves for i in wave] == list(range(len(prompts)))
    for wave, tokens in zip(made.waves, made.wave_tokens, strict=True):
        assert len(wave) > 0
        assert tokens == distinct([prompts[i] for i in wave])
        weights = held + 1600 + 3000 * made.resident
        assert weights + 10 * tokens + 4 * num_layers * len(wave) <= made.peak_bytes
    assert made.num_prompt_tokens == sum(map(len, prompts))
    assert made.num_tokens == sum(made.wave_tokens)


def test_the_peak_is_the_largest_wave_and_all_that_is_held():
    made = plan([[1, 2], [3]], num_layers=5, held_bytes=777)
    assert made.waves == (range(2),)
    assert made.peak_bytes == 777 + 1500 + 100 + 3 * 10 + 2 * 5 * 4


@pytest.mark.parametrize("spare", [0, -1])
def test_the_least_that_can_run_does_run_and_a_byte_less_does_not(spare):
    if spare == 0:
        assert plan([[1]], memory_bytes=LEAST).waves == (range(1),)
    else:
        with pytest.raises(CapacityError):
            plan([[1]], memory_bytes=LEAST + spare)


def test_a_refusal_says_what_is_needed_and_what_there_is():
    footprint = dataclasses.replace(FOOTPRINT, open_bytes=3 * 10**9)
    with pytest.raises(CapacityError) as caught:
        plan([[1] * 50], footprint=footprint, memory_bytes=2 * 10**9)
    assert str(caught.value) == (
        "this run needs 3001 MB of memory and may use 2000 MB; allow more with "
        "--memory, or use shorter prompts"
    )


class TestResident:
    """One wave opens each block once anyway; several may share what stays."""

    def test_not_for_one_wave(self):
        assert not plan(long_prompts(3)).resident

    def test_for_one_wave_when_another_run_will_follow(self):
        made = plan(long_prompts(3), keep_resident=True)
        assert made.resident
        assert made.peak_bytes == 1600 + 3 * 1000 + 300 * 10 + 3 * 4

    def test_for_several_waves_that_fit_beside_the_blocks(self):
        made = plan(long_prompts(400))
        assert made.resident
        assert len(made.waves) == 3
        assert max(made.wave_tokens) <= WAVE_TOKENS

    def test_not_where_the_blocks_do_not_fit(self):
        # Room for enough tokens, not for three blocks beside them.
        memory = 1600 + 2999 + 10 * ENOUGH_TOKENS + 4 * 400
        made = plan(long_prompts(400), memory_bytes=memory)
        assert not made.resident
        assert all(
            1600 + 10 * tokens + 4 * len(wave) <= memory
            for wave, tokens in zip(made.waves, made.wave_tokens, strict=True)
        )

    def test_smaller_waves_are_enough_beside_the_blocks(self):
        memory = 1600 + 3000 + (10 + 4) * ENOUGH_TOKENS
        made = plan(long_prompts(400), memory_bytes=memory)
        assert made.resident
        assert ENOUGH_TOKENS < max(made.wave_tokens) < WAVE_TOKENS
        assert made.peak_bytes <= memory

    def test_a_long_prompt_counts_with_its_lists_of_keys(self):
        """Beside the blocks there must be room for the longest prompt, keys and all."""
        listed = dataclasses.replace(FOOTPRINT, key_bytes=5)
        long = [[9] * (2 * ENOUGH_TOKENS), *long_prompts(2)]
        memory = 1600 + 2999 + (10 + 5) * 2 * ENOUGH_TOKENS + 4
        made = plan(long, footprint=listed, memory_bytes=memory, keep_resident=True)
        assert made.peak_bytes <= memory

    def test_streamed_waves_are_as_large_as_memory_allows(self):
        made = plan(long_prompts(200), num_blocks=10**10)
        assert not made.resident
        assert made.wave_tokens == (20_000,)

    def test_a_prompt_longer_than_a_usual_wave_runs_alone(self):
        made = plan([*long_prompts(2), [9] * (2 * WAVE_TOKENS)])
        assert max(made.wave_tokens) == 2 * WAVE_TOKENS
        assert made.waves[-1].stop == 3


def test_equal_prompts_cost_rows_but_no_tokens():
    made = plan([[1, 2, 3]] * 1000)
    assert made.num_tokens == 3
    assert made.peak_bytes == 1600 + 3 * 10 + 1000 * 4
    # Their rows alone may need several waves.
    several = plan([[1, 2, 3]] * 1000, memory_bytes=1600 + 30 + 4 * 300)
    assert [len(wave) for wave in several.waves] == [300, 300, 300, 100]


def test_prompts_of_other_rotary_lengths_share_nothing():
    made = plan_extraction(
        [[1, 2], [1, 2]],
        [64, 65],
        num_blocks=1,
        budget=budget(),
        keep_resident=False,
    )
    assert made.num_tokens == 4


@given(PROMPTS, st.integers(1, 12), st.integers(1, 6))
def test_a_wave_ends_where_the_next_prompt_no_longer_fits(prompts, tokens, count):
    def fits(num_prompts: int, num_tokens: int) -> bool:
        return bool(num_prompts <= count and num_tokens <= tokens)

    waves = split_waves(prompts, [0] * len(prompts), fits)
    assert [i for wave, _ in waves for i in wave] == list(range(len(prompts)))
    for wave, num_tokens in waves:
        assert num_tokens == distinct(prompts[wave.start : wave.stop])
        assert len(wave) == 1 or fits(len(wave), num_tokens)
        if wave.stop < len(prompts):
            longer = prompts[wave.start : wave.stop + 1]
            assert not fits(len(longer), distinct(longer))


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (
            plan([[1, 2, 3], [1, 2, 4]]),
            "plan: 2 prompts, 6 tokens, 4 distinct; 3 blocks, weights read for each "
            "wave; one wave; peak 1 MB of 1000000 MB that may be used",
        ),
        (
            plan(long_prompts(400)),
            "plan: 400 prompts, 40000 tokens, 40000 distinct; 3 blocks, weights "
            "resident; 3 waves; peak 1 MB of 1000000 MB that may be used",
        ),
    ],
)
def test_a_plan_reads_as_one_line(made, line):
    assert str(made) == line


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 MB"), (1, "1 MB"), (10**6, "1 MB"), (10**6 + 1, "2 MB")]
)
def test_megabytes_are_rounded_up(count, text):
    assert megabytes(count) == text


def test_lists_of_keys_count_for_every_token_of_every_prompt():
    """A long prefix is stored once, and listed again for every prompt that has it."""
    listed = dataclasses.replace(FOOTPRINT, key_bytes=5)
    prompts = [[1] * 100 + [number] for number in range(2, 22)]
    made = plan(prompts, footprint=listed)
    distinct_bytes = 1600 + 120 * 10 + 20 * 4
    assert made.peak_bytes == distinct_bytes + 20 * 101 * 5
    several = plan(prompts, footprint=listed, memory_bytes=made.peak_bytes // 2)
    assert len(several.waves) > 2
    assert several.peak_bytes <= several.memory_bytes
