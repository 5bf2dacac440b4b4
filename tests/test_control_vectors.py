"""GGUF control vectors: the numbering, both ways with the gguf package, refusals."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ster
from ster.errors import DocumentError, OutputError
from ster.vectors.steering import SteeringVector

NO_SLOT = (
    "a GGUF control vector has no slot for layer 0; llama.cpp adds after block 1 and "
    "later ones, so leave that layer out of the vector's layers"
)


def vector(layers: tuple[int, ...] = (1, 4), **parts: Any) -> SteeringVector:
    draw = np.random.default_rng(3)
    whole: dict[str, Any] = {
        "array": draw.normal(size=(len(layers), 5)).astype(np.float32),
        "model": "org/model",
        "model_revision": "0" * 40,
        "precision": "bf16",
        "chat_template": "applied",
        "trait_name": "calm 🦙",
        "method": "caa",
        "train_margin": tuple(0.1 * (layer + 1) for layer in layers),
        "train_accuracy": (0.875,) * len(layers),
        "metadata": {"pair_count": "8", "é": "\n"},
    }
    return SteeringVector(layers=layers, **(whole | parts))


def read_by_the_package(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    reader = gguf.GGUFReader(path)
    fields = {
        name: field.contents()
        for name, field in reader.fields.items()
        if not name.startswith("GGUF.")
    }
    assert {tensor.tensor_type for tensor in reader.tensors} == {
        gguf.GGMLQuantizationType.F32
    }
    return fields, {tensor.name: np.array(tensor.data) for tensor in reader.tensors}


def write_by_the_package(
    path: Path,
    tensors: dict[str, np.ndarray],
    architecture: str = "controlvector",
    **texts: str,
) -> None:
    """Write a control vector as repeng does, and llama.cpp's own generator."""
    writer = gguf.GGUFWriter(path, architecture)
    for name, text in texts.items():
        writer.add_string(name.replace("__", "."), text)
    writer.add_uint32("controlvector.layer_count", len(tensors))
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def added_by_llama_cpp(tensors: dict[str, np.ndarray], block: int) -> np.ndarray | None:
    """What llama.cpp adds after a block, counted from 0, as its sources have it.

    Its loader puts direction.N at N - 1 of a buffer, and its adapter fills the slot of
    block il, which there is from 1 on, with what is at il - 1 of that buffer.
    """
    buffer = {int(name.split(".")[1]) - 1: row for name, row in tensors.items()}
    assert min(buffer) >= 0
    slots = {il: buffer.get(il - 1) for il in range(1, 8)}
    return slots.get(block)


def test_the_number_of_a_direction_is_the_block_after_which_ster_adds(tmp_path: Path):
    made = vector((1, 4))
    made.save(tmp_path / "v.gguf")
    _, tensors = read_by_the_package(tmp_path / "v.gguf")
    assert list(tensors) == ["direction.1", "direction.4"]
    for block in range(8):
        added = added_by_llama_cpp(tensors, block)
        if block in made.layers:
            assert added is not None
            assert added.tobytes() == made.direction(block).tobytes()
        else:
            assert added is None


def test_the_package_reads_every_key(tmp_path: Path):
    vector().save(tmp_path / "v.gguf")
    fields, _ = read_by_the_package(tmp_path / "v.gguf")
    margins, accuracies = (
        fields.pop("ster.train_margin"),
        fields.pop("ster.train_accuracy"),
    )
    assert margins == pytest.approx([0.2, 0.5])
    assert accuracies == [0.875, 0.875]
    assert fields == {
        "general.architecture": "controlvector",
        "general.name": "calm 🦙",
        "controlvector.model_hint": "org/model",
        "controlvector.layer_count": 2,
        "ster.schema_version": 1,
        "ster.version": ster.__version__,
        "ster.model": "org/model",
        "ster.model_revision": "0" * 40,
        "ster.precision": "bf16",
        "ster.chat_template": "applied",
        "ster.trait_name": "calm 🦙",
        "ster.method": "caa",
        "ster.metadata": '{"pair_count":"8","é":"\\n"}',
    }


def assert_same(one: SteeringVector, other: SteeringVector) -> None:
    for name in ("layers", "model", "model_revision", "precision", "chat_template"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("trait_name", "method", "train_margin", "train_accuracy", "metadata"):
        assert getattr(one, name) == getattr(other, name)
    assert one.array.tobytes() == other.array.tobytes()


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@settings(deadline=None)
@given(
    layers=st.sets(st.integers(1, 10**6), min_size=1, max_size=4).map(sorted),
    rows=st.lists(st.lists(finite, min_size=3, max_size=3), min_size=4, max_size=4),
    numbers=st.lists(finite, min_size=4, max_size=4),
    optional=st.none() | texts,
    metadata=st.dictionaries(texts, texts, max_size=2),
    name=texts,
)
@pytest.mark.parametrize("form", ["json", "npz", "safetensors", "gguf"])
def test_a_round_trip_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    form: str,
    layers: list[int],
    rows: list[list[float]],
    numbers: list[float],
    optional: str | None,
    metadata: dict[str, str],
    name: str,
):
    path = tmp_path_factory.getbasetemp() / f"round_trip.{form}"
    array = np.array(rows[: len(layers)], np.float32)
    array[~array.any(axis=1), 0] = 1  # a direction of zeros is refused
    made = vector(
        tuple(layers),
        array=array,
        model=name,
        trait_name=name,
        method=f"m{name}",
        model_revision=optional,
        precision=optional,
        chat_template=optional,
        train_margin=tuple(numbers[: len(layers)]),
        train_accuracy=tuple(numbers[::-1][: len(layers)]),
        metadata=metadata,
    )
    made.save(path)
    assert_same(made, SteeringVector.load(path))


@pytest.mark.parametrize("form", ["npz", "safetensors", "gguf"])
def test_saving_twice_gives_the_same_bytes(tmp_path: Path, form: str):
    vector().save(tmp_path / f"1.{form}")
    SteeringVector.load(tmp_path / f"1.{form}").save(tmp_path / f"2.{form}")
    first = (tmp_path / f"1.{form}").read_bytes()
    assert first == (tmp_path / f"2.{form}").read_bytes()


def test_a_file_of_repeng_is_read(tmp_path: Path):
    rows = np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)
    tensors = {
        f"direction.{layer}": row for layer, row in zip((9, 1, 2), rows, strict=True)
    }
    hint = {"controlvector__model_hint": "mistral"}
    write_by_the_package(tmp_path / "happy.gguf", tensors, **hint)
    loaded = SteeringVector.load(tmp_path / "happy.gguf")
    assert loaded.layers == (1, 2, 9)
    assert np.array_equal(loaded.array, rows[[1, 2, 0]])
    assert (loaded.model, loaded.method) == ("mistral", "gguf")
    assert loaded.trait_name == "happy"
    assert set(loaded.train_margin) == {0}
    assert loaded.precision is None
    assert loaded.model_revision is None
    loaded.save(tmp_path / "again.json")
    assert_same(loaded, SteeringVector.load(tmp_path / "again.json"))


def test_a_name_in_the_file_is_the_trait(tmp_path: Path):
    tensors = {"direction.1": np.ones(4, np.float32)}
    write_by_the_package(tmp_path / "v.gguf", tensors, general__name="joy")
    loaded = SteeringVector.load(tmp_path / "v.gguf")
    assert (loaded.trait_name, loaded.model) == ("joy", "")


def test_values_of_every_kind_are_passed_over(tmp_path: Path):
    writer = gguf.GGUFWriter(tmp_path / "v.gguf", "controlvector")
    writer.add_array("words", ["a", "bb"])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("truths", [True, False])
    writer.add_array("weights", [0.5, 1.5])
    writer.add_bool("controlvector.normalize", False)
    writer.add_float64("f64", 0.5)
    writer.add_uint8("u8", 1)
    writer.add_int64("i64", -1)
    writer.add_custom_alignment(64)
    writer.add_tensor("direction.3", np.arange(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert SteeringVector.load(tmp_path / "v.gguf").array.tolist() == [[0, 1, 2, 3]]


def test_layer_0_is_refused_and_nothing_is_shifted(tmp_path: Path):
    with pytest.raises(OutputError) as refusal:
        vector((0, 1)).save(tmp_path / "v.gguf")
    assert refusal.value.sentence == f"failed to write {tmp_path / 'v.gguf'}"
    assert refusal.value.causes == (NO_SLOT,)
    assert refusal.value.layer == 0
    assert list(tmp_path.iterdir()) == []


def test_a_layer_beyond_every_model_is_refused(tmp_path: Path):
    with pytest.raises(OutputError, match="no slot for layer 1000000000"):
        vector((1, 10**9)).save(tmp_path / "v.gguf")
    with pytest.raises(OutputError, match="layer 9223372036854775808 is beyond"):
        vector((1, 2**63)).save(tmp_path / "v.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("field", ["model", "trait_name", "metadata"])
@pytest.mark.parametrize("form", ["npz", "safetensors", "gguf"])
def test_a_text_that_is_no_unicode_is_refused(tmp_path: Path, form: str, field: str):
    text: Any = {"a": "\udcff"} if field == "metadata" else "\udcff"
    with pytest.raises(OutputError, match="^failed to write steering artifact"):
        vector(**{field: text}).save(tmp_path / f"new/v.{form}")
    assert list(tmp_path.iterdir()) == []


def refusal_of(path: Path) -> DocumentError:
    with pytest.raises(DocumentError) as refusal:
        SteeringVector.load(path)
    assert refusal.value.path == str(path)
    assert "\n" not in str(refusal.value)
    return refusal.value


ROW = np.ones(4, np.float32)


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        (
            {"direction.0": ROW},
            "a control vector has no direction.0; llama.cpp",
        ),
        (
            {"direction.1": ROW, "direction.2": ROW[:3]},
            "layer 2 has vector width 3, e",
        ),
        ({"direction.1": ROW * 0}, "layer 1 contains only zeros"),
        ({"direction.1": ROW * np.inf}, "layer 1 contains a non-finite value"),
        ({}, "artifact has no steering vectors"),
        ({"direction.1": ROW.astype(np.float16)}, '"direction.1" is not f32'),
        ({"direction.1": np.ones((2, 2), np.float32)}, '"direction.1" is no vector'),
        ({"direction.01": ROW}, '"direction.01" is no direction.N'),
        ({"direction.-1": ROW}, '"direction.-1" is no direction.N'),
        ({"direction.1": ROW, "other": ROW}, '"other" is no direction.N'),
    ],
)
def test_what_is_no_control_vector_is_refused_by_name(
    tmp_path: Path, tensors: dict[str, np.ndarray], sentence: str
):
    write_by_the_package(tmp_path / "v.gguf", tensors)
    assert sentence in str(refusal_of(tmp_path / "v.gguf"))


def test_a_model_is_no_control_vector(tmp_path: Path):
    write_by_the_package(tmp_path / "v.gguf", {"w": ROW}, architecture="llama")
    refusal = refusal_of(tmp_path / "v.gguf")
    assert refusal.sentence == f"invalid steering artifact {tmp_path / 'v.gguf'}"
    cause = 'its general.architecture is "llama", not "controlvector"'
    assert refusal.causes == (cause,)


def text(words: str) -> bytes:
    data = words.encode()
    return struct.pack("<Q", len(data)) + data


KIND = text("general.architecture") + struct.pack("<I", 8) + text("controlvector")
PLACE = text("direction.1") + struct.pack("<IQIQ", 1, 2, 0, 0)


def raw(tensors: int, keys: int, *parts: bytes, version: int = 3) -> bytes:
    head = struct.pack("<4sIQQ", b"GGUF", version, tensors, keys)
    header = head + b"".join(parts)
    return header + b"\0" * (-len(header) % 32)


OURS = text("ster.schema_version") + struct.pack("<II", 4, 2)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"GGUF", "it ends early"),
        (raw(0, 0, version=1), "it is GGUF of version 1; ster reads 2 and 3"),
        (raw(0, 0, version=3 << 24), "it is GGUF of version 50331648"),
        (raw(0, 0), "its general.architecture is none"),
        (raw(2**60, 1, KIND), f"it declares {2**60} tensors"),
        (raw(0, 2**60, KIND), f"it declares {2**60} keys"),
        (raw(0, 2, KIND, KIND), 'key "general.architecture" is given twice'),
        (raw(0, 1, struct.pack("<Q", 2**60)), f"it declares {2**60} bytes of a text"),
        (raw(0, 1, struct.pack("<Q", 2**20)), "it ends early"),
        (raw(0, 1, struct.pack("<Q", 1) + b"\xff"), "a text of it is not UTF-8"),
        (raw(0, 1, text("k"), struct.pack("<I", 13)), "a value of the unknown kind 13"),
        (
            raw(0, 1, text("k"), struct.pack("<IIQ", 9, 9, 1)),
            "an array of the unknown kind 9",
        ),
        (raw(0, 1, text("k"), struct.pack("<IIQ", 9, 0, 2**40)), "it ends early"),
        (raw(0, 1, text("k"), struct.pack("<IIQ", 9, 6, 2**62)), "it ends early"),
        (raw(0, 1, text("k"), struct.pack("<IIQ", 9, 8, 2**62)), "it ends early"),
        (raw(1, 1, KIND, text("t"), struct.pack("<I", 5)), '"t" has 5 axes'),
        (raw(1, 1, KIND, PLACE), "it ends early"),
        (raw(2, 1, KIND, PLACE, PLACE), "a tensor is there twice"),
        (
            raw(1, 1, KIND, text("t"), struct.pack("<IQIQ", 1, 2**62, 0, 0)),
            "it ends early",
        ),
        (
            raw(1, 1, KIND, text("t"), struct.pack("<IQIQ", 1, 1, 0, 2**63)),
            "it ends early",
        ),
        (
            raw(0, 2, KIND, text("general.alignment"), struct.pack("<II", 4, 0)),
            "its general.alignment is none",
        ),
        (
            raw(0, 2, KIND, text("general.alignment"), struct.pack("<If", 6, 32.0)),
            "its general.alignment is none",
        ),
        (raw(1, 2, KIND, OURS, PLACE) + b"\1" * 8, "artifact schema 2 is unsupported"),
    ],
)
def test_what_a_file_declares_is_bounded_by_what_it_has(
    tmp_path: Path, data: bytes, sentence: str
):
    (tmp_path / "v.gguf").write_bytes(data)
    assert sentence in str(refusal_of(tmp_path / "v.gguf"))


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(
        DocumentError, match="^failed to read steering artifact .*: No "
    ):
        SteeringVector.load(tmp_path / "v.gguf")


def test_a_file_is_known_by_its_content(tmp_path: Path):
    for form in ("gguf", "npz", "safetensors", "json"):
        vector().save(tmp_path / f"v.{form}")
        (tmp_path / f"v.{form}").rename(tmp_path / "v")
        assert_same(vector(), SteeringVector.load(tmp_path / "v"))


@settings(deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 900), st.binary(min_size=1, max_size=8)), min_size=1
    ),
    cut=st.integers(0, 60),
)
def test_a_damaged_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[int, bytes]],
    cut: int,
):
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    vector().save(path)
    data = bytearray(path.read_bytes())
    for at, piece in changes:
        place = at % len(data)
        data[place : place + len(piece)] = piece
    path.write_bytes(data[: len(data) - cut])
    with suppress(DocumentError):
        SteeringVector.load(path)
