"""Plans are arithmetic: waves cover the prompts in order and fit into the memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ster.decoder.contract import Footprint
from ster.errors import CapacityError
from ster.runs.plan import ENOUGH_TOKENS, WAVE_TOKENS, Plan, plan_run
from ster.runs.work import Budget, Work
from ster.stream.packing import pack_prompts
from ster.text import allowed_megabytes, megabytes

FOOTPRINT = Footprint(
    blocks=(1000, 1000, 1000),
    open_bytes=1500,
    head_bytes=700,
    embedding_bytes=80,
    token_bytes=10,
    point_bytes=6,
    key_bytes=0,
    row_bytes=4,
    logit_bytes=50,
    choice_bytes=9,
    cache_bytes=30,
    fixed_bytes=100,
)
# What a run of one token and one layer takes: weights, scratch, a token, a row.
LEAST = 1500 + 100 + 10 + 4
AMPLE = 10**12
PROMPTS = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=20
)


def plan(
    prompts: list[list[int]],
    *,
    memory: int = AMPLE,
    held: int = 0,
    stayed: int = 0,
    footprint: Footprint = FOOTPRINT,
    **work: Any,
) -> Plan:
    words: dict[str, Any] = {"num_blocks": 3, "kinds": [0] * len(prompts)}
    rows = work.pop("rows_per_prompt", 1)
    words |= {"rows": [rows] * len(prompts) if rows else [], "rows_per_token": rows}
    return plan_run(
        Work(token_ids=prompts, **(words | work)),
        Budget(
            footprint=footprint,
            other_bytes=held,
            held_bytes=stayed,
            memory_bytes=memory,
        ),
    )


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
def test_a_plan_fits_and_covers_all_prompts(prompts, memory, held, repeats, layers):
    longest = max(map(len, prompts))
    least = held + 1600 + 10 * longest + 4 * layers
    words: dict[str, Any] = {
        "memory": memory,
        "held": held,
        "repeats": repeats,
        "rows_per_prompt": layers,
    }
    if least > memory:
        with pytest.raises(CapacityError) as caught:
            plan(prompts, **words)
        assert caught.value.found == least
        assert caught.value.expected == memory
        return
    made = plan(prompts, **words)
    assert made.peak_bytes <= made.memory_bytes == memory
    assert [i for wave in made.waves for i in wave] == list(range(len(prompts)))
    for wave, tokens in zip(made.waves, made.wave_tokens, strict=True):
        assert len(wave) > 0
        assert tokens == distinct([prompts[i] for i in wave])
        weights = held + 1600 + 3000 * made.keep
        assert weights + 10 * tokens + 4 * layers * len(wave) <= made.peak_bytes
    assert made.num_prompt_tokens == sum(map(len, prompts))
    assert made.num_tokens == sum(made.wave_tokens)


def test_the_peak_is_the_largest_wave_and_all_that_is_held():
    made = plan([[1, 2], [3]], rows_per_prompt=5, held=777)
    assert made.waves == (range(2),)
    assert made.peak_bytes == 777 + 1500 + 100 + 3 * 10 + 2 * 5 * 4


@pytest.mark.parametrize("spare", [0, -1])
def test_the_least_that_can_run_does_run_and_a_byte_less_does_not(spare):
    if spare == 0:
        assert plan([[1]], memory=LEAST).waves == (range(1),)
    else:
        with pytest.raises(CapacityError):
            plan([[1]], memory=LEAST + spare)


def test_a_refusal_says_what_is_needed_and_what_there_is():
    footprint = dataclasses.replace(FOOTPRINT, open_bytes=3 * 10**9)
    with pytest.raises(CapacityError) as caught:
        plan([[1] * 50], footprint=footprint, memory=2 * 10**9)
    assert str(caught.value) == (
        "this run needs 3001 MB of memory and may use 2000 MB; allow more with "
        "--memory, or use shorter prompts"
    )
    assert caught.value.field == "memory"


def test_a_refusal_names_the_longest_prompt():
    with pytest.raises(CapacityError) as caught:
        plan([[1], [2] * 500, [3] * 500], memory=LEAST)
    assert caught.value.prompt == 2
    assert caught.value.found == LEAST + 499 * 10
    assert caught.value.expected == LEAST


class TestWeightsThatStay:
    """One wave opens each block once anyway; several may share what stays."""

    def test_not_for_one_wave(self):
        assert not plan(long_prompts(3)).keep

    def test_for_one_wave_when_another_run_will_follow(self):
        made = plan(long_prompts(3), repeats=True)
        assert made.keep
        assert made.peak_bytes == 1600 + 3 * 1000 + 300 * 10 + 3 * 4

    def test_for_several_waves_that_fit_beside_the_blocks(self):
        made = plan(long_prompts(400))
        assert made.keep
        assert len(made.waves) == 3
        assert max(made.wave_tokens) <= WAVE_TOKENS

    def test_not_where_the_blocks_do_not_fit(self):
        # Room for enough tokens, not for three blocks beside them.
        memory = 1600 + 2999 + 10 * ENOUGH_TOKENS + 4 * 400
        made = plan(long_prompts(400), memory=memory)
        assert not made.keep
        assert all(
            1600 + 10 * tokens + 4 * len(wave) <= memory
            for wave, tokens in zip(made.waves, made.wave_tokens, strict=True)
        )

    def test_smaller_waves_are_enough_beside_the_blocks(self):
        memory = 1600 + 3000 + (10 + 4) * ENOUGH_TOKENS
        made = plan(long_prompts(400), memory=memory)
        assert made.keep
        assert ENOUGH_TOKENS < max(made.wave_tokens) < WAVE_TOKENS
        assert made.peak_bytes <= memory

    def test_a_long_prompt_counts_with_its_lists_of_keys(self):
        """Beside the blocks there must be room for the longest prompt, keys and all."""
        listed = dataclasses.replace(FOOTPRINT, key_bytes=5)
        long = [[9] * (2 * ENOUGH_TOKENS), *long_prompts(2)]
        memory = 1600 + 2999 + (10 + 5) * 2 * ENOUGH_TOKENS + 4
        made = plan(long, footprint=listed, memory=memory, repeats=True)
        assert made.peak_bytes <= memory

    def test_where_all_prompts_fit_beside_the_blocks_though_a_usual_wave_does_not(self):
        memory = 1600 + 3000 + 300 * 10 + 3 * 4
        assert plan(long_prompts(3), memory=memory, repeats=True).keep
        assert not plan(long_prompts(3), memory=memory - 1, repeats=True).keep

    def test_streamed_waves_are_as_large_as_memory_allows(self):
        heavy = dataclasses.replace(FOOTPRINT, blocks=(AMPLE,))
        made = plan(long_prompts(200), footprint=heavy)
        assert not made.keep
        assert made.wave_tokens == (20_000,)

    def test_a_prompt_longer_than_a_usual_wave_runs_alone(self):
        made = plan([*long_prompts(2), [9] * (2 * WAVE_TOKENS)])
        assert max(made.wave_tokens) == 2 * WAVE_TOKENS
        assert made.waves[-1].stop == 3


class TestWeightsThatStayed:
    """Blocks, and maybe the head, that earlier runs of the session left behind."""

    ALONE = 1600 + 300 * 10 + 3 * 4  # one wave, weights opened and closed

    def test_are_counted_beside_a_wave_that_keeps_nothing(self):
        made = plan(long_prompts(3), stayed=1000)
        assert (made.keep, made.release) == (False, False)
        assert made.peak_bytes == self.ALONE + 1000

    def test_are_no_part_of_what_a_run_keeps_twice(self):
        made = plan(long_prompts(3), stayed=2000, repeats=True)
        assert made.peak_bytes == self.ALONE + 3000
        deeper = plan(long_prompts(3), stayed=3000, repeats=True, num_blocks=1)
        assert deeper.peak_bytes == self.ALONE + 3000

    def test_may_have_the_head_among_them(self):
        """All blocks and the head stayed; a run that needs them adds none."""
        made = plan(long_prompts(3), stayed=3700, head=True)
        assert not made.keep
        assert made.peak_bytes == self.ALONE + 3700
        exact = plan(long_prompts(3), stayed=3700, head=True, memory=made.peak_bytes)
        assert not exact.release

    def test_go_where_a_run_needs_their_memory(self):
        ample = plan(long_prompts(3), stayed=3000, num_blocks=1)
        assert (ample.release, ample.peak_bytes) == (False, self.ALONE + 3000)
        memory = ample.peak_bytes - 1
        short = plan(long_prompts(3), stayed=3000, num_blocks=1, memory=memory)
        assert (short.release, short.peak_bytes) == (True, self.ALONE)

    @given(
        PROMPTS,
        st.integers(0, 4),
        st.booleans(),
        st.booleans(),
        st.integers(0, 20_000),
    )
    def test_never_make_a_plan_exceed_its_limit(
        self, prompts, blocks, head, repeats, memory
    ):
        stayed = 3700 if blocks == 4 else 1000 * blocks
        words: dict[str, Any] = {"head": head, "repeats": repeats, "stayed": stayed}
        try:
            made = plan(prompts, memory=memory, **words)
        except CapacityError:
            return
        assert made.peak_bytes <= memory
        assert not (made.keep and made.release)


def test_equal_prompts_cost_rows_but_no_tokens():
    made = plan([[1, 2, 3]] * 1000)
    assert made.num_tokens == 3
    assert made.peak_bytes == 1600 + 3 * 10 + 1000 * 4
    # Their rows alone may need several waves.
    several = plan([[1, 2, 3]] * 1000, memory=1600 + 30 + 4 * 300)
    assert [len(wave) for wave in several.waves] == [300, 300, 300, 100]


def test_prompts_of_other_rotary_lengths_share_nothing():
    made = plan([[1, 2], [1, 2]], kinds=[64, 65])
    assert made.num_tokens == 4


@given(PROMPTS, st.integers(1, 12), st.integers(1, 6))
def test_a_wave_ends_where_the_next_prompt_no_longer_fits(prompts, tokens, count):
    heavy = dataclasses.replace(FOOTPRINT, blocks=(AMPLE,), row_bytes=0)
    tokens = max(tokens, *map(len, prompts), 1)
    made = plan(prompts, footprint=heavy, memory=1600 + 10 * tokens, max_prompts=count)
    for wave, num_tokens in zip(made.waves, made.wave_tokens, strict=True):
        assert num_tokens == distinct(prompts[wave.start : wave.stop])
        assert len(wave) <= count
        assert num_tokens <= tokens
        if wave.stop < len(prompts):
            longer = prompts[wave.start : wave.stop + 1]
            assert len(longer) > count or distinct(longer) > tokens


class TestAnswers:
    """Every token needs all blocks and the head, and the keys and values before it."""

    def write(self, **words: Any) -> Plan:
        how = {"head": True, "logit_rows": 1, "max_prompts": 1, "repeats": True}
        how |= {"new_tokens": 20, "rows_per_prompt": 0}
        return plan([[1] * 50, [2] * 30], **(how | words))

    def test_count_head_logits_keys_and_values_of_the_longest_prompt(self):
        made = self.write()
        weights = 1600 + 3 * 1000 + 700 + 80
        # One layer's keys and values once more, while their room grows.
        caches = (50 + 20) * 30 * 4 // 3
        assert made.keep
        assert made.peak_bytes == weights + 50 * 10 + 50 + caches + 9
        assert [len(wave) for wave in made.waves] == [1, 1]

    def test_are_written_by_weights_that_are_read_anew_where_they_do_not_fit(self):
        kept = self.write()
        made = self.write(memory=kept.peak_bytes - 1)
        assert not made.keep
        assert made.peak_bytes == kept.peak_bytes - 3 * 1000
        assert made.kept_bytes == kept.peak_bytes

    def test_are_refused_where_their_keys_and_values_do_not_fit(self):
        with pytest.raises(CapacityError):
            self.write(memory=10_000, new_tokens=300)


def test_a_batch_of_responses_holds_no_more_than_it_may():
    made = plan(
        long_prompts(7),
        head=True,
        logit_rows=32,
        max_prompts=3,
        repeats=True,
        rows_per_prompt=0,
    )
    assert [len(wave) for wave in made.waves] == [3, 3, 1]
    assert made.peak_bytes == 1600 + 3000 + 700 + 3 * 100 * 10 + 32 * 50


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (
            plan([[1, 2, 3], [1, 2, 4]]),
            "plan: 2 prompts, 6 tokens, 4 distinct; 3 blocks, weights read once; "
            "one wave; peak 1 MB of 1000000 MB that may be used",
        ),
        (
            plan(long_prompts(400)),
            "plan: 400 prompts, 40000 tokens, 40000 distinct; 3 blocks, weights "
            "resident; 3 waves (prompts 1..163, 164..326, 327..400); peak 1 MB of "
            "1000000 MB that may be used",
        ),
        (
            plan(long_prompts(40), max_prompts=3),
            "plan: 40 prompts, 4000 tokens, 4000 distinct; 3 blocks, weights "
            "resident; 14 waves (1 to 3 prompts each); peak 1 MB of 1000000 MB that "
            "may be used",
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


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 byte"),
        (10**6 - 1, "999999 bytes"),
        (10**6, "1 MB"),
        (2 * 10**6 - 1, "1 MB"),
    ],
)
def test_what_may_be_used_is_never_rounded_up(count, text):
    assert allowed_megabytes(count) == text


def test_lists_of_keys_count_for_every_token_of_every_prompt():
    """A long prefix is stored once, and listed again for every prompt that has it."""
    listed = dataclasses.replace(FOOTPRINT, key_bytes=5)
    prompts = [[1] * 100 + [number] for number in range(2, 22)]
    made = plan(prompts, footprint=listed)
    distinct_bytes = 1600 + 120 * 10 + 20 * 4
    assert made.peak_bytes == distinct_bytes + 20 * 101 * 5
    several = plan(prompts, footprint=listed, memory=made.peak_bytes // 2)
    assert len(several.waves) > 2
    assert several.peak_bytes <= several.memory_bytes
