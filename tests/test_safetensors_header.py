"""Headers of weight files: read as the safetensors library reads them, but bounded."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from safetensors import SafetensorError, deserialize

from ster.checkpoint.safetensors_header import (
    MAX_HEADER_BYTES,
    TensorPlace,
    header_size,
    parse_header,
)

A = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
B = {"dtype": "BF16", "shape": [5], "data_offsets": [24, 34]}
BOTH = {"b": B, "a": A}


def edited(**changes: Any) -> dict[str, Any]:
    """Change fields of the second tensor; ``...`` removes one."""
    fields = {key: value for key, value in {**B, **changes}.items() if value is not ...}
    return {"a": A, "b": fields}


def library_reads(text: bytes, data_size: int) -> bool:
    """Ask the safetensors library whether it takes a file of this header."""
    try:
        deserialize(len(text).to_bytes(8, "little") + text + bytes(data_size))
    except SafetensorError:
        return False
    return True


def test_places_are_read():
    header = {"__metadata__": {"format": "pt"}, **BOTH}
    assert parse_header(json.dumps(header).encode() + b"   ", 34) == {
        "b": TensorPlace("BF16", (5,), 24, 34),
        "a": TensorPlace("F32", (2, 3), 0, 24),
    }


@pytest.mark.parametrize(
    ("header", "data_size"),
    [
        ({}, 0),
        ({"__metadata__": {}}, 0),
        ({"__metadata__": None, **BOTH}, 34),
        ({"s": {"dtype": "F64", "shape": [], "data_offsets": [0, 8]}}, 8),
        ({"e": {"dtype": "U8", "shape": [0, 7], "data_offsets": [0, 0]}, **BOTH}, 34),
        ({"f": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}}, 2),
        (edited(more=1), 34),
    ],
)
def test_what_the_library_reads_is_read(header, data_size):
    text = json.dumps(header).encode()
    assert library_reads(text, data_size)
    assert parse_header(text, data_size).keys() == header.keys() - {"__metadata__"}


@pytest.mark.parametrize(
    ("header", "data_size", "words"),
    [
        ({"a": A, "b": A}, 24, "lies at bytes 0 to 24, where byte 24 should come"),
        (edited(data_offsets=[20, 30]), 30, "where byte 24 should come next"),
        (edited(data_offsets=[26, 36]), 36, "where byte 24 should come next"),
        (edited(data_offsets=[34, 24]), 34, "where byte 24 should come next"),
        (edited(data_offsets=[24, 36]), 36, "12 bytes, which do not make BF16 of"),
        (edited(shape=[6]), 34, "10 bytes, which do not make BF16 of shape [6]"),
        (edited(shape=[2**63, 4]), 34, "too large a shape"),
        (edited(shape=[2**64]), 34, "the tensor b"),
        (BOTH, 33, "its tensors take 34 bytes, and 33 are there"),
        (BOTH, 35, "its tensors take 34 bytes, and 35 are there"),
        (edited(dtype="F33"), 34, "the tensor b has the unknown type F33"),
        (edited(dtype=1), 34, "no proper dtype, shape and data_offsets"),
        (edited(dtype=...), 34, "no proper dtype"),
        (edited(shape=...), 34, "no proper dtype"),
        (edited(shape=5), 34, "no proper dtype"),
        (edited(shape=[5.0]), 34, "no proper dtype"),
        (edited(shape=[-5]), 34, "no proper dtype"),
        (edited(shape=[True, 5]), 34, "no proper dtype"),
        (edited(shape=["5"]), 34, "no proper dtype"),
        (edited(data_offsets=[24]), 34, "no proper dtype"),
        (edited(data_offsets=[24, 34, 34]), 34, "no proper dtype"),
        (edited(data_offsets=None), 34, "no proper dtype"),
        ({"a": A, "b": []}, 24, "no proper dtype"),
        ({"__metadata__": {"a": 1}, **BOTH}, 34, "no object of texts"),
        ({"__metadata__": ["a"], **BOTH}, 34, "no object of texts"),
    ],
)
def test_what_the_library_refuses_is_refused(header, data_size, words):
    text = json.dumps(header).encode()
    assert not library_reads(text, data_size)
    with pytest.raises(ValueError, match=".") as caught:
        parse_header(text, data_size)
    assert words in str(caught.value)


def test_a_tensor_that_is_given_twice_is_refused_though_the_library_takes_the_last():
    text = b'{"a": %(a)b, "a": %(a)b}' % {b"a": json.dumps(A).encode()}
    with pytest.raises(ValueError, match="twice"):
        parse_header(text, 24)


@pytest.mark.parametrize("text", [b"", b"[]", b"1", b"{", b'{"a"}', b"{}x", b"\xff{}"])
def test_what_is_no_json_object_is_refused(text):
    assert not library_reads(text, 0)
    with pytest.raises(ValueError, match="."):
        parse_header(text, 0)


def test_headers_damaged_at_random_are_never_read_where_the_library_reads_none():
    rng = random.Random(5)
    whole = json.dumps({"__metadata__": {"format": "pt"}, **BOTH}).encode()
    num_read = 0
    for _ in range(4000):
        text = bytearray(whole)
        for _ in range(rng.choice((1, 1, 2, 3))):
            at = rng.randrange(len(text))
            text[at : at + rng.randrange(2)] = rng.choice(
                (b"", b"0", b"1", b"9", b",", b"[", b"}", b'"', b"-", b".", b"e", b" ")
            )
        try:
            parse_header(bytes(text), 34)
        except ValueError:
            continue
        assert library_reads(bytes(text), 34), bytes(text)
        num_read += 1
    assert num_read > 100


class TestSize:
    def test_is_what_the_first_bytes_say(self):
        assert header_size((24).to_bytes(8, "little"), 100) == 24

    @pytest.mark.parametrize("length", [b"", b"1234567"])
    def test_of_a_file_that_ends_before_is_refused(self, length):
        with pytest.raises(ValueError, match=f"ends after {len(length)} bytes"):
            header_size(length, len(length))

    @pytest.mark.parametrize("size", [93, 2**40, 2**64 - 1])
    def test_beyond_the_file_is_refused(self, size):
        with pytest.raises(ValueError, match=f"take {size} bytes, and 92 are there"):
            header_size(size.to_bytes(8, "little"), 100)

    def test_that_no_checkpoint_needs_is_refused_before_it_is_read(self):
        ends = [MAX_HEADER_BYTES, MAX_HEADER_BYTES + 1]
        file_size = 2**40
        assert header_size(ends[0].to_bytes(8, "little"), file_size) == ends[0]
        with pytest.raises(ValueError, match="no checkpoint needs more than 16777216"):
            header_size(ends[1].to_bytes(8, "little"), file_size)

    def test_leaves_room_for_a_hundred_thousand_tensors_in_one_file(self):
        name = "model.layers.60.mlp.experts.255.down_proj.weight_scale_inv"
        entry = {
            "dtype": "F8_E4M3",
            "shape": [7168, 2048],
            "data_offsets": [10**12] * 2,
        }
        assert len(json.dumps({name: entry})) * 100_000 < MAX_HEADER_BYTES
