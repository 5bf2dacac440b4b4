"""Quantized bytes -> values: equal to whole-number arithmetic, and to MLX's own."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ster.architecture.quantization import MODES, Format
from ster.checkpoint import packing_formats
from ster.checkpoint.packing_formats import dequantize, dequantize_fp8

F32 = NDArray[np.float32]
AFFINE = [
    Format(mode="affine", bits=bits, group_size=group_size)
    for bits in sorted(MODES["affine"].bits)
    for group_size in sorted(MODES["affine"].group_sizes)
]
FLOATS = [
    Format(mode=mode, bits=choices.bits[0], group_size=choices.group_sizes[0])
    for mode, choices in MODES.items()
    if mode != "affine"
]
FP8 = Format(mode="fp8", bits=8, group_size=128, block_rows=128)
NAN = Fraction(-1, 7)  # stands for it below


def name(format: Format) -> str:
    return f"{format.mode}-{format.bits}-{format.group_size}"


def codes_of(words: NDArray[np.uint32], bits: int) -> list[list[int]]:
    """Take a row as one whole number, and its values from the lowest bits on."""
    rows = []
    for row in words:
        number = int.from_bytes(row.astype("<u4").tobytes(), "little")
        count = len(row) * 32 // bits
        rows.append([number >> i * bits & ((1 << bits) - 1) for i in range(count)])
    return rows


def e2m1(code: int) -> Fraction:
    sizes = (0, 1, 2, 3, 4, 6, 8, 12)
    return Fraction(sizes[code & 7], 2) * (-1 if code & 8 else 1)


def e4m3(code: int) -> Fraction:
    exponent, fraction = code >> 3 & 15, code & 7
    if exponent == 15 and fraction == 7:
        return NAN
    size = Fraction(fraction, 512)
    if exponent:
        size = Fraction(8 + fraction, 8) * Fraction(2) ** (exponent - 7)
    return -size if code & 128 else size


def random_words(rows: int, inputs: int, bits: int, seed: int = 0) -> NDArray[Any]:
    random = np.random.default_rng(seed)
    return random.integers(0, 2**32, (rows, inputs * bits // 32), dtype=np.uint32)


def random_scales(rows: int, groups: int, dtype: str, seed: int = 1) -> tuple[F32, F32]:
    """Draw scales of either sign, and biases near what they cancel."""
    random = np.random.default_rng(seed)
    scales = random.standard_normal((rows, groups)) * 0.1
    biases = -scales * random.integers(0, 9, scales.shape) * (1 + scales / 1e4)
    return as_stored(scales, dtype), as_stored(biases, dtype)


def as_stored(values: NDArray[Any], dtype: str) -> F32:
    if dtype == "bf16":
        bits = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return bits.view(np.float32)
    return values.astype(np.float16 if dtype == "f16" else np.float32).astype(
        np.float32
    )


def nearest(value: Fraction) -> np.float32:
    """Round once: f64 holds all that is compared here but for f32 scales and biases."""
    as_f64 = value.numerator / value.denominator  # Python rounds this right
    rounded = np.float32(as_f64)
    around = [rounded, np.nextafter(rounded, np.float32(as_f64 * 2 - rounded))]
    return min(around, key=lambda each: abs(Fraction(float(each)) - value))


def mlx_values(
    words: NDArray[Any], scales: NDArray[Any], biases: F32 | None, format: Format
) -> F32:
    mx = pytest.importorskip("mlx.core")
    with mx.stream(mx.cpu):
        return np.array(
            mx.dequantize(
                mx.array(words),
                mx.array(scales),
                None if biases is None else mx.array(biases),
                group_size=format.group_size,
                bits=format.bits,
                mode=format.mode,
                dtype=mx.float32,
            )
        )


def assert_same_bits(found: F32, expected: F32) -> None:
    assert found.dtype == expected.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(
        found.view(np.uint32)[numbers], expected.view(np.uint32)[numbers]
    )


class TestAffine:
    @pytest.mark.parametrize("format", AFFINE, ids=name)
    @pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
    def test_every_value_is_the_exact_one_rounded_once(self, format, dtype):
        rows, inputs = 3, 256
        words = random_words(rows, inputs, format.bits)
        words[0, 0], words[1] = 0xFFFFFFFF, 0
        groups = inputs // format.group_size
        scales, biases = random_scales(rows, groups, dtype)
        found = dequantize(words, scales, biases, format)
        assert found.shape == (rows, inputs)
        for row, codes in enumerate(codes_of(words, format.bits)):
            for i, code in enumerate(codes):
                at = row, i // format.group_size
                scale, bias = Fraction(float(scales[at])), Fraction(float(biases[at]))
                assert found[row, i] == nearest(scale * code + bias)

    @pytest.mark.parametrize("format", AFFINE, ids=name)
    def test_values_are_those_of_mlx_but_for_its_roundings(self, format):
        rows, inputs = 4, 384
        words = random_words(rows, inputs, format.bits)
        shape = rows, inputs // format.group_size
        scales, biases = random_scales(*shape, "bf16")
        found = dequantize(words, scales, biases, format)
        expected = mlx_values(words, scales, biases, format)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7 * 255)

    def test_scales_too_large_for_f32_do_not_make_a_finite_value_infinite(self):
        format = Format(mode="affine", bits=8, group_size=32)
        words = np.full((1, 8), 0xFFFFFFFF, np.uint32)
        scales = np.full((1, 1), 1.5 * 2.0**120, np.float32)
        found = dequantize(words, scales, -150 * scales, format)
        assert set(found.ravel()) == {np.float32(105 * 1.5 * 2.0**120)}

    def test_the_smallest_scales_are_exact(self):
        format = Format(mode="affine", bits=8, group_size=32)
        words = random_words(1, 32, 8)
        scales = np.full((1, 1), 2.0**-133, np.float32)
        found = dequantize(words, scales, np.zeros((1, 1), np.float32), format)
        [codes] = codes_of(words, 8)
        assert [float(each) for each in found[0]] == [
            math.ldexp(code, -133) for code in codes
        ]


class TestFloats:
    @pytest.mark.parametrize("format", FLOATS, ids=name)
    def test_values_are_codes_times_scales(self, format):
        rows, inputs = 2, 128
        words = random_words(rows, inputs, format.bits)
        shape = rows, inputs // format.group_size
        scales = np.random.default_rng(2).integers(90, 160, shape, dtype=np.uint8)
        found = dequantize(words, scales, None, format)
        value = e2m1 if format.bits == 4 else e4m3
        for row, codes in enumerate(codes_of(words, format.bits)):
            for i, code in enumerate(codes):
                byte = int(scales[row, i // format.group_size])
                is_nv = format.mode == "nvfp4"
                scale = e4m3(byte) if is_nv else Fraction(2) ** (byte - 127)
                if NAN in (scale, value(code)):
                    assert np.isnan(found[row, i])
                else:
                    assert found[row, i] == nearest(scale * value(code))

    @pytest.mark.parametrize("format", FLOATS, ids=name)
    def test_every_code_with_every_scale_has_the_bits_that_mlx_gives_it(self, format):
        scales = np.arange(256, dtype=np.uint8)[:, None]
        inputs = 256 if format.bits == 8 else 32
        codes = np.arange(inputs * format.bits // 8, dtype=np.uint8)
        if format.bits == 4:
            codes = codes * 2 % 16 + (codes * 2 % 16 + 1) * 16
        words = np.repeat(codes.view(np.uint32)[None], 256, axis=0)
        scales = np.repeat(scales, inputs // format.group_size, axis=1)
        found = dequantize(words, scales, None, format)
        assert_same_bits(found, mlx_values(words, scales, None, format))

    @pytest.mark.parametrize("format", FLOATS, ids=name)
    def test_what_mlx_quantizes_is_read_as_mlx_reads_it(self, format):
        mx = pytest.importorskip("mlx.core")
        values = np.random.default_rng(3).standard_normal((7, 320)).astype(np.float32)
        with mx.stream(mx.cpu):
            words, scales = (
                np.array(each)
                for each in mx.quantize(
                    mx.array(values),
                    group_size=format.group_size,
                    bits=format.bits,
                    mode=format.mode,
                )
            )
        found = dequantize(words, scales, None, format)
        assert_same_bits(found, mlx_values(words, scales, None, format))
        assert np.abs(found - values).max() < 1


class TestFp8:
    def test_every_byte_is_e4m3_without_infinities(self):
        values = np.arange(256, dtype=np.uint8)[None]
        scales = np.ones((1, 2), np.float32)
        [found] = dequantize_fp8(values, scales, FP8)
        expected = [e4m3(code) for code in range(256)]
        assert [i for i in range(256) if np.isnan(found[i])] == [0x7F, 0xFF]
        for code in set(range(256)) - {0x7F, 0xFF}:
            assert Fraction(float(found[code])) == expected[code]
        assert found[0x7E] == 448
        assert np.signbit(found[0x80])

    @pytest.mark.parametrize(
        ("rows", "inputs", "block_rows", "group_size"),
        [(256, 256, 128, 128), (200, 300, 128, 128), (5, 7, 2, 3), (3, 5, 128, 128)],
    )
    def test_each_block_has_its_scale_and_the_last_may_be_cut_short(
        self, rows, inputs, block_rows, group_size
    ):
        format = Format(
            mode="fp8", bits=8, group_size=group_size, block_rows=block_rows
        )
        random = np.random.default_rng(4)
        values = random.integers(0, 0x7F, (rows, inputs), dtype=np.uint8)
        blocks = -(-rows // block_rows), -(-inputs // group_size)
        scales = random.standard_normal(blocks).astype(np.float32)
        found = dequantize_fp8(values, scales, format)
        expected = np.array(
            [
                [
                    np.float32(float(e4m3(int(values[row, i]))))
                    * scales[row // block_rows, i // group_size]
                    for i in range(inputs)
                ]
                for row in range(rows)
            ]
        )
        assert_same_bits(found, expected)
        for first, last in [(0, 1), (1, rows), (rows // 2, rows)]:
            some = dequantize_fp8(values[first:last], scales, format, first_row=first)
            assert_same_bits(some, expected[first:last])


class TestPieces:
    """A matrix is worked on in pieces, and any rows of it may be asked for."""

    @pytest.mark.parametrize("format", [*AFFINE[::4], *FLOATS], ids=name)
    @pytest.mark.parametrize("dtype", ["bf16", "f32"])
    def test_their_size_changes_nothing(self, monkeypatch, format, dtype):
        rows, inputs = 13, 256
        words = random_words(rows, inputs, format.bits)
        shape = rows, inputs // format.group_size
        scales, biases = self.parts(format, shape, dtype)
        whole = dequantize(words, scales, biases, format)
        for values in (1, 600, 1000):
            monkeypatch.setattr(packing_formats, "_PIECE_VALUES", values)
            assert_same_bits(dequantize(words, scales, biases, format), whole)

    @pytest.mark.parametrize("format", [*AFFINE[::4], *FLOATS], ids=name)
    def test_rows_and_columns_of_a_matrix_that_lies_oddly_are_read(self, format):
        rows, inputs = 6, 256
        words = random_words(rows, inputs, format.bits)
        shape = rows, inputs // format.group_size
        scales, biases = self.parts(format, shape, "bf16")
        whole = dequantize(words, scales, biases, format)
        half = inputs * format.bits // 64
        for odd in (np.asfortranarray(words), unaligned(words), read_only(words)):
            some = dequantize(
                odd[1::2, :half],
                scales[1::2, : shape[1] // 2],
                None if biases is None else biases[1::2, : shape[1] // 2],
                format,
            )
            assert_same_bits(some, whole[1::2, : inputs // 2])

    @pytest.mark.parametrize("format", [AFFINE[0], AFFINE[3], *FLOATS], ids=name)
    def test_the_result_goes_where_it_is_asked_for(self, format):
        words = random_words(2, 128, format.bits)
        shape = 2, 128 // format.group_size
        scales, biases = self.parts(format, shape, "bf16")
        out = np.full((2, 128), np.nan, np.float32)
        assert dequantize(words, scales, biases, format, out) is out
        assert_same_bits(out, dequantize(words, scales, biases, format))
        for wrong in (np.empty((128, 2), np.float32), np.asfortranarray(out)):
            with pytest.raises(ValueError, match="out is not"):
                dequantize(words, scales, biases, format, wrong)

    @staticmethod
    def parts(
        format: Format, shape: tuple[int, int], dtype: str
    ) -> tuple[NDArray[Any], F32 | None]:
        if format.mode == "affine":
            return random_scales(*shape, dtype)
        random = np.random.default_rng(5)
        return random.integers(40, 126, shape, dtype=np.uint8), None


def unaligned(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    data = b"?" + words.tobytes()
    return np.frombuffer(data, np.uint32, offset=1).reshape(words.shape)


def read_only(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    copied = words.copy()
    copied.flags.writeable = False
    return copied
