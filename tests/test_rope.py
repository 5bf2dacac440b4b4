"""Rotary frequencies and tables, against those that transformers computes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ster.architecture.parts import Rotary
from ster.architecture.rotary import (
    DefaultRope,
    DynamicRope,
    LinearRope,
    Llama3Rope,
    RopeConfig,
    YarnRope,
)
from ster.stream.rotary import F32, ROWS, RotaryTables, frequencies, rotary_tables

DYNAMIC = DynamicRope(theta=10000.0, factor=2.0, max_position_embeddings=64)
YARN = YarnRope(
    theta=10000.0,
    factor=4.0,
    attention_factor=1.138629436111989,
    beta_fast=32.0,
    beta_slow=1.0,
    truncate=True,
    original_max_position_embeddings=2048,
)
LLAMA3 = Llama3Rope(
    theta=500000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=8192,
)
# The bits of inv_freq in transformers 5.24's LlamaRotaryEmbedding (on torch's cpu), for
# head_dim 16; dynamic ones after a prompt of that many tokens.
FREQUENCIES: list[tuple[str, RopeConfig, int, str]] = [
    (
        "default",
        DefaultRope(theta=10000.0),
        0,
        "3f800000 3ea1e89b 3dcccccd 3d0186e3 3c23d70a 3b4f3e38 3a83126f 39a5cb60",
    ),
    (
        "default 500000",
        DefaultRope(theta=500000.0),
        0,
        "3f800000 3e4693b0 3d1a08c8 3beef74f 3ab95d21 398fc8f8 385f10c4 372d07a7",
    ),
    (
        "linear",
        LinearRope(theta=10000.0, factor=3.0),
        0,
        "3eaaaaab 3dd7e0cf 3d088889 3c2cb3d9 3b5a740d 3a8a297b 39aec33f 38dd0f2b",
    ),
    (
        "dynamic 64",
        DYNAMIC,
        64,
        "3f800000 3ea1e89b 3dcccccd 3d0186e3 3c23d70a 3b4f3e38 3a83126f 39a5cb60",
    ),
    (
        "dynamic 65",
        DYNAMIC,
        65,
        "3f800000 3ea132cd 3dcb01df 3cffa8ec 3c20fbf8 3b4abcd2 3a7f51f7 39a0c536",
    ),
    (
        "dynamic 200",
        DYNAMIC,
        200,
        "3f800000 3e7f8464 3d7f0903 3c7e8dde 3b7e12f7 3a7d9847 397d1dd5 387ca39e",
    ),
    (
        "llama3",
        LLAMA3,
        0,
        "3f800000 3e4693b0 3d1a08c8 3beef74f 3a0995d2 380fc8f8 36df10c4 35ad07a7",
    ),
    (
        "llama3 by other factors",
        Llama3Rope(
            theta=10000.0,
            factor=4.0,
            low_freq_factor=2.0,
            high_freq_factor=8.0,
            original_max_position_embeddings=256,
        ),
        0,
        "3f800000 3ea1e89b 3d509b8a 3c0186e3 3b23d70a 3a4f3e38 3983126f 38a5cb60",
    ),
    (
        "yarn",
        YARN,
        0,
        "3f800000 3ea1e89b 3dcccccd 3cd27b30 3bcccccc 3ab55671 3983126f 38a5cb60",
    ),
    (
        "yarn factor 40",
        dataclasses.replace(YARN, factor=40.0, original_max_position_embeddings=4096),
        0,
        "3f800000 3ea1e89b 3dcccccd 3cc3e8d0 3ba7ef9d 3a5ec949 37d1b717 3704a2b3",
    ),
    (
        "yarn not truncated",
        dataclasses.replace(
            YARN, theta=1e6, truncate=False, beta_fast=16.0, beta_slow=2.0
        ),
        0,
        "3f800000 3e361887 3cd9f7f8 3ab8449c 3983126f 383a7753 3704a2b2 35bcb0c1",
    ),
    (
        "yarn original 1024",
        dataclasses.replace(YARN, original_max_position_embeddings=1024),
        0,
        "3f800000 3ea1e89b 3da66667 3ca1e89c 3b8f5c29 3a4f3e38 3983126f 38a5cb60",
    ),
]
# Cosines, then sines, of the same at head_dim 8, by position.
TABLES: dict[str, tuple[RopeConfig, dict[int, str]]] = {
    "default": (
        DefaultRope(theta=10000.0),
        {
            0: "3f800000 3f800000 3f800000 3f800000 "
            "00000000 00000000 00000000 00000000",
            1: "3f0a5141 3f7eb898 3f7ffcb9 3f7ffff8 "
            "3f576aa4 3dcc7577 3c23d657 3a83126e",
            63: "3f7c63b8 3f7ff6bc 3f4edae4 3f7f7dfd "
            "3e2b5f4b 3c89bdb4 3f16d231 3d80f04d",
            8191: "bf2579d9 bf27ddfc 3f795740 bea94e30 "
            "bf43546a 3f414754 3e680a3c 3f719943",
            99999: "bf028731 bf7a52e5 3f1214a7 3f5c9ffd "
            "3f5c393b be567045 3f523abf bf01d937",
        },
    ),
    "yarn": (
        YARN,
        {
            0: "3f91be9c 3f91be9c 3f91be9c 3f91be9c "
            "00000000 00000000 00000000 00000000",
            63: "3f8fb067 3f91b956 3f86977c 3f91b9fb "
            "3e432125 3c9cd603 3edfa97a 3c92e78a",
            99999: "bf149f85 bf8e8356 bf8f4e14 3f907528 "
            "3f7ac0c6 be742a82 3e54704f be1a9a5b",
        },
    ),
}


def floats(bits: str) -> np.ndarray:
    return np.array([int(b, 16) for b in bits.split()], np.uint32).view(np.float32)


def tables(rope: RopeConfig, dim: int, positions: list[int]) -> RotaryTables[F32]:
    lengths = np.full(len(positions), max(positions) + 1)
    return rotary_tables(Rotary(scaling=rope, dim=dim), np.array(positions), lengths)


@pytest.mark.parametrize(
    ("rope", "length", "bits"),
    [row[1:] for row in FREQUENCIES],
    ids=[row[0] for row in FREQUENCIES],
)
def test_frequencies_have_the_bits_that_transformers_gives_them(rope, length, bits):
    found = frequencies(rope, 16, length)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, floats(bits))


def test_frequencies_of_a_wide_head_have_the_same_bits_too():
    # theta 1e6, head_dim 128; every eighth of the 64.
    bits = "3f800000 3ed7e89b 3e361887 3d99940d 3d0186e3 3c5a7bf2 3bb8449c 3b1b690d"
    bits += " 3a83126f 39dd1725 393a7753 389d43a4 3804a2b2 375fba4f 36bcb0c1 361f23e4"
    np.testing.assert_array_equal(
        frequencies(DefaultRope(theta=1e6), 128)[::4], floats(bits)
    )


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_those_of_transformers_to_the_last_bit_or_one_beside_it(name):
    rope, rows = TABLES[name]
    found = tables(rope, 8, list(rows))
    # torch's float32 cosine is not always the nearest float32; ours is.
    expected = np.stack([floats(bits) for bits in rows.values()])
    np.testing.assert_array_max_ulp(
        np.hstack([found.cos, found.sin]), expected, maxulp=2
    )


@pytest.mark.parametrize("head_dim", [4, 64])
def test_angles_are_float32_and_their_cosines_exact_up_to_position_100000(head_dim):
    positions = list(range(0, 100_001, 97))
    found = tables(DefaultRope(theta=10000.0), head_dim, positions)
    turns = frequencies(DefaultRope(theta=10000.0), head_dim).astype(np.float64)
    # The product of two float32 is exact in float64, so this rounds once, as float32.
    angles = np.outer(positions, turns).astype(np.float32).astype(np.float64)
    assert np.abs(found.cos - np.cos(angles)).max() <= 2**-25
    assert np.abs(found.sin - np.sin(angles)).max() <= 2**-25
    assert found.cos.dtype == found.sin.dtype == np.float32
    assert found.cos.shape == (len(positions), head_dim // 2)


def test_positions_may_repeat_and_come_in_any_order():
    rope = DefaultRope(theta=10000.0)
    ascending = tables(rope, 8, [0, 1, 2, 3])
    shuffled = tables(rope, 8, [3, 0, 0, 2])
    np.testing.assert_array_equal(shuffled.cos, ascending.cos[[3, 0, 0, 2]])
    np.testing.assert_array_equal(shuffled.sin, ascending.sin[[3, 0, 0, 2]])


def test_tokens_of_prompts_of_several_lengths_stand_in_one_table():
    positions = np.array([5, 5, 5, 199], np.int64)
    rotary = Rotary(scaling=DYNAMIC, dim=8)
    found = rotary_tables(rotary, positions, np.array([64, 200, 64, 200]))
    for row, (position, length) in enumerate([(5, 64), (5, 200), (5, 64), (199, 200)]):
        alone = rotary_tables(rotary, np.array([position]), np.array([length]))
        np.testing.assert_array_equal(found.cos[row], alone.cos[0])
        np.testing.assert_array_equal(found.sin[row], alone.sin[0])
    assert not np.array_equal(found.cos[0], found.cos[1])


def test_a_long_table_is_made_in_parts_that_join():
    rotary = Rotary(scaling=DefaultRope(theta=10000.0), dim=8)
    positions = np.arange(2 * ROWS + 5)
    whole = rotary_tables(rotary, positions, np.zeros(len(positions), np.int64))
    for at in (0, ROWS - 1, ROWS, 2 * ROWS, len(positions) - 1):
        alone = rotary_tables(rotary, positions[at : at + 1], np.zeros(1, np.int64))
        np.testing.assert_array_equal(whole.cos[at], alone.cos[0])
        np.testing.assert_array_equal(whole.sin[at], alone.sin[0])


def test_llama3_keeps_short_wavelengths_and_divides_long_ones():
    plain = frequencies(DefaultRope(theta=500000.0), 64)
    scaled = frequencies(LLAMA3, 64)
    wavelengths = 2 * np.pi / plain
    short, long = wavelengths < 8192 / 4, wavelengths > 8192
    np.testing.assert_array_equal(scaled[short], plain[short])
    np.testing.assert_array_equal(scaled[long], plain[long] / np.float32(8))
    between = ~short & ~long
    assert between.any()
    assert (scaled[between] < plain[between]).all()
    assert (scaled[between] > plain[between] / 8).all()


def test_yarn_with_equal_bounds_is_finite():
    rope = dataclasses.replace(YARN, truncate=False, beta_fast=1.0, beta_slow=1.0)
    assert np.isfinite(frequencies(rope, 16)).all()


def test_an_absurd_scaling_gives_numbers_that_are_not_finite_without_a_warning():
    found = tables(LinearRope(theta=10000.0, factor=1e-45), 8, [0, 7])
    assert not np.isfinite(found.cos).all()
