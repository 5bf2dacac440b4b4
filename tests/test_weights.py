"""Safetensors files -> tensors: exact values, and every fault named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ster.architecture.modules import Matrix, Shapes, Values
from ster.architecture.quantization import Format, Quantization
from ster.architecture.spec import Placed
from ster.checkpoint.stored import RAW_TYPES, STORED_TYPES, StoredTensor
from ster.checkpoint.weights import open_weights
from ster.errors import WeightsError

Raw = dict[str, tuple[str, tuple[int, ...], bytes]]
FORMAT = Format(mode="affine", bits=4, group_size=32)
ROWS = np.arange(1, 13, dtype=np.float32).reshape(4, 3)


def write(path: Path, tensors: Raw, *, pad: int | None = None) -> Path:
    """Write a file; ``pad`` spaces after the header move the data off alignment."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, shape, part) in tensors.items():
        offsets = [len(data), len(data) + len(part)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 if pad is None else (pad - len(text)) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def f32(values: NDArray[np.float32] = ROWS) -> tuple[str, tuple[int, ...], bytes]:
    return "F32", values.shape, values.astype("<f4").tobytes()


def names(*found: str) -> Raw:
    return {name: f32() for name in found}


def shapes(*wanted: str) -> Shapes:
    return dict.fromkeys(wanted, (4, 3))


def as_modules(wanted: Shapes) -> list[Placed]:
    return [("", Values(name=name, shape=shape)) for name, shape in wanted.items()]


def open_tensors(files: Sequence[Path], wanted: Shapes) -> dict[str, StoredTensor]:
    found = open_weights(files, as_modules(wanted))
    return {
        name: each for name, each in found.items() if isinstance(each, StoredTensor)
    }


def read(path: Path, name: str = "a", shape: tuple[int, ...] = (4, 3)) -> StoredTensor:
    return open_tensors([path], {name: shape})[name]


def causes(files: list[Path], wanted: Shapes) -> tuple[str, ...]:
    with pytest.raises(WeightsError) as caught:
        open_tensors(files, wanted)
    assert caught.value.sentence == f"failed to map {len(files)} model weight files"
    return caught.value.causes


class TestValues:
    def test_of_f32_are_its_own(self, tmp_path):
        tensor = read(write(tmp_path / "m", names("a")))
        np.testing.assert_array_equal(tensor.as_float32(), ROWS)

    def test_of_f16_are_exact_for_all_its_patterns(self, tmp_path):
        bits = np.arange(65536, dtype=np.uint16).reshape(256, 256)
        path = write(tmp_path / "m", {"a": ("F16", bits.shape, bits.tobytes())})
        found = read(path, shape=bits.shape).as_float32()
        assert found.dtype == np.float32
        with np.errstate(invalid="ignore"):  # signalling NaNs
            expected = bits.view(np.float16).astype(np.float32)
        np.testing.assert_array_equal(found, expected)

    def test_of_bf16_are_exact_for_all_its_patterns(self, tmp_path):
        bits = np.arange(65536, dtype=np.uint16).reshape(256, 256)
        path = write(tmp_path / "m", {"a": ("BF16", bits.shape, bits.tobytes())})
        found = read(path, shape=bits.shape).as_float32()
        assert found.dtype == np.float32
        # The upper half of an f32, NaNs too; compared as bits for their sake.
        expected = bits.astype(np.uint32) << 16
        np.testing.assert_array_equal(found.view(np.uint32), expected)
        assert float(found[0x3F, 0xC0]) == 1.5

    @pytest.mark.parametrize("dtype", STORED_TYPES)
    @pytest.mark.parametrize("pad", range(8))
    def test_of_an_unaligned_tensor_are_right_and_aligned(self, tmp_path, dtype, pad):
        values = ROWS.astype(np.float16 if dtype == "F16" else np.float32)
        stored = values.view(np.uint32) >> 16 if dtype == "BF16" else values
        data = stored.astype(RAW_TYPES[dtype]).tobytes()
        path = write(tmp_path / "m", {"a": (dtype, (4, 3), data)}, pad=pad)
        found = read(path).as_float32()
        np.testing.assert_array_equal(found, ROWS)
        assert found.flags.aligned


@pytest.mark.parametrize("dtype", STORED_TYPES)
class TestParts:
    @pytest.fixture
    def tensor(self, tmp_path: Path, dtype: str) -> StoredTensor:
        """Return a matrix of 5 pages or 10, with a neighbour on each side."""
        values = np.random.default_rng(3).integers(0, 2**14, (40, 512))
        data = values.astype(RAW_TYPES[dtype])
        raw = {
            "before": f32(),
            "a": (dtype, data.shape, data.tobytes()),
            "behind": f32(),
        }
        return read(write(tmp_path / "m", raw), shape=(40, 512))

    def test_are_rows_at_their_place(self, tensor):
        whole = tensor.as_float32().copy()
        for start, count in [(0, 40), (0, 1), (7, 12), (39, 1), (5, 0)]:
            part = tensor.part(start, count)
            expected = whole[start : start + count]
            np.testing.assert_array_equal(part.as_float32(), expected)
            out = np.empty(part.shape, RAW_TYPES[tensor.dtype])
            np.testing.assert_array_equal(part.read(out), part.read())

    @pytest.mark.parametrize("together", [1 << 22, 1])
    @pytest.mark.parametrize(
        "rows", [[39, 0, 7, 7], [3, 4, 5], [9, 7, 5, 8], [20], [], [2, 38], [4, 4, 4]]
    )
    def test_are_taken_by_row(self, tensor, monkeypatch, rows, together):
        monkeypatch.setattr("ster.checkpoint.stored._TOGETHER_BYTES", together)
        found = tensor.rows_as_float32(np.array(rows, np.intp))
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, tensor.as_float32()[rows])

    def test_are_one_of_a_stack(self, tensor):
        stack = tensor.viewed(tensor.dtype, (4, 10, 512))
        whole = tensor.as_float32()
        np.testing.assert_array_equal(stack.at(2).as_float32(), whole[20:30])

    def test_may_be_wished_for_ahead(self, tensor):
        whole = tensor.as_float32()
        for part in (tensor, tensor.part(3, 30), tensor.part(39, 1), tensor.part(5, 0)):
            part.prefetch()
            np.testing.assert_array_equal(tensor.as_float32(), whole)


def test_a_tensor_without_values_can_be_read_and_cut(tmp_path):
    path = write(tmp_path / "m", {"a": ("F32", (0, 3), b"")})
    tensor = read(path, shape=(0, 3))
    tensor.prefetch()
    assert tensor.as_float32().shape == (0, 3)


def test_names_may_have_the_prefix_of_a_whole_model_or_not(tmp_path):
    for prefix in ("model.", ""):
        path = write(tmp_path / "m", names(f"{prefix}embed", f"{prefix}norm.weight"))
        assert list(open_tensors([path], shapes("embed"))) == ["embed"]


@pytest.mark.parametrize("prefix", ["model.", ""])
def test_the_head_never_has_the_prefix(tmp_path, prefix):
    path = write(tmp_path / "m", names("lm_head.weight", f"{prefix}embed"))
    wanted = ["embed", "lm_head.weight"]
    assert list(open_tensors([path], shapes(*wanted))) == wanted


def test_tensors_are_found_over_shards_in_the_order_asked_for(tmp_path):
    first = write(tmp_path / "m1", {"b": f32(), "a": f32(ROWS + 1)})
    second = write(tmp_path / "m2", {"c": f32(ROWS + 2)})
    found = open_tensors([first, second], shapes("c", "a", "b"))
    assert list(found) == ["c", "a", "b"]
    for name, plus in (("a", 1), ("b", 0), ("c", 2)):
        np.testing.assert_array_equal(found[name].as_float32(), ROWS + plus)


def test_a_symbolic_link_is_followed(tmp_path):
    (tmp_path / "blobs").mkdir()
    write(tmp_path / "blobs/0123", names("a"))
    link = tmp_path / "model.safetensors"
    link.symlink_to("blobs/0123")
    np.testing.assert_array_equal(read(link).as_float32(), ROWS)


class TestRefusals:
    def test_a_missing_tensor_is_named_as_the_file_would(self, tmp_path):
        path = write(tmp_path / "m", names("model.a"))
        assert causes([path], shapes("a", "b")) == ("the tensor model.b is missing",)

    def test_a_tensor_of_another_shape_is_named_with_both(self, tmp_path):
        path = write(tmp_path / "m", names("a"))
        assert causes([path], {"a": (3, 4)}) == (
            "the tensor a has shape [4, 3], expected [3, 4]",
        )
        assert causes([path], {"a": (12,)}) == (
            "the tensor a has shape [4, 3], expected [12]",
        )

    @pytest.mark.parametrize(
        ("dtype", "size"), [("F64", 8), ("I8", 1), ("F8_E4M3", 1), ("U32", 4)]
    )
    def test_a_tensor_of_another_width_is_named_with_it(self, tmp_path, dtype, size):
        path = write(tmp_path / "m", {"a": (dtype, (4, 3), bytes(12 * size))})
        sentence, *why = causes([path], shapes("a"))
        assert sentence == (
            f"the tensor a is stored as {dtype}; Ster reads F32, F16, BF16"
        )
        assert not why

    @pytest.mark.parametrize("dtype", ["U32", "U8", "F8_E4M3"])
    @pytest.mark.parametrize(
        ("declared", "why"),
        [
            (None, "does not say how it is quantized"),
            (Quantization(default=FORMAT), "the tensor a.scales, which belongs to it"),
            (
                Quantization(default=FORMAT, overrides={"a": None}),
                "config.json says that it is not quantized",
            ),
        ],
    )
    def test_packed_values_that_cannot_be_unpacked_say_why(
        self, tmp_path, dtype, declared, why
    ):
        size = 4 if dtype == "U32" else 1
        path = write(tmp_path / "m", {"a.weight": (dtype, (4, 4), bytes(16 * size))})
        matrix = Matrix(name="a", outputs=4, inputs=32)
        with pytest.raises(WeightsError) as caught:
            open_weights([path], [("", matrix)], None, declared)
        _, sentence, cause = (caught.value.sentence, *caught.value.causes)
        assert sentence.startswith(f"the tensor a.weight is stored as {dtype}; Ster")
        assert why in cause
        assert caught.value.found == dtype

    def test_a_tensor_in_two_shards_is_named_with_the_second(self, tmp_path):
        first = write(tmp_path / "m1", names("a", "b"))
        second = write(tmp_path / "m2", names("b", "c"))
        assert causes([first, second], shapes("a")) == ("m2 repeats the tensor b",)

    @pytest.mark.parametrize("prefix", ["model.", ""])
    def test_a_tensor_that_the_config_gives_no_place_is_named(self, tmp_path, prefix):
        extra = f"{prefix}layers.1.self_attn.q_proj.bias"
        path = write(tmp_path / "m", names(f"{prefix}layers.1.a", extra))
        assert causes([path], shapes("layers.1.a")) == (
            f"the tensor {extra} is in the checkpoint, but config.json gives it no "
            "place",
        )

    @pytest.mark.parametrize(
        "extra",
        [
            "model.layers.1.self_attn.rotary_emb.inv_freq",
            "model.layers.2.self_attn.q_proj.bias",
            "model.layers.12.self_attn.q_proj.bias",
            "model.norm.weight",
            "lm_head.weight",
            "lm_head.bias",
            "model.rotary_emb.inv_freq",
        ],
    )
    def test_what_does_not_change_the_blocks_that_run_is_ignored(self, tmp_path, extra):
        path = write(tmp_path / "m", names("model.layers.1.a", extra))
        assert list(open_tensors([path], shapes("layers.1.a"))) == ["layers.1.a"]

    @pytest.mark.parametrize("keep", [0, 5, 8, 40, -1])
    def test_a_truncated_file_is_named(self, tmp_path, keep):
        path = write(tmp_path / "m.safetensors", names("a"))
        path.write_bytes(path.read_bytes()[:keep])
        sentence, detail = causes([path], shapes("a"))
        assert sentence == "m.safetensors is damaged or cannot be read"
        assert detail

    @pytest.mark.parametrize(
        "content",
        [
            b"\xff" * 64,
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            (16).to_bytes(8, "little") + b'{"a": not json}}',
            (2).to_bytes(8, "little") + b"{}" + b"more",
        ],
    )
    def test_a_file_of_something_else_is_named(self, tmp_path, content):
        path = tmp_path / "m.safetensors"
        path.write_bytes(content)
        sentence, detail = causes([path], shapes("a"))
        assert sentence == "m.safetensors is damaged or cannot be read"
        assert detail

    def test_a_missing_file_is_named(self, tmp_path):
        assert causes([tmp_path / "m.safetensors"], shapes("a"))[0] == (
            "m.safetensors is damaged or cannot be read"
        )

    def test_a_directory_is_named(self, tmp_path):
        assert causes([tmp_path], shapes("a"))[0] == (
            f"{tmp_path.name} is damaged or cannot be read"
        )

    def test_a_file_without_tensors_lacks_them(self, tmp_path):
        path = write(tmp_path / "m", {})
        assert causes([path], shapes("a")) == ("the tensor a is missing",)
