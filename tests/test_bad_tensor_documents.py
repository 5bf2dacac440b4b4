"""Safetensors and npz that are no documents of ster's, damaged, or made to do harm."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from ster.documents.activations.value import Activations
from ster.errors import DocumentError
from ster.vectors.steering import SteeringVector
from tests.activation_documents import whole_activations

FORMS = ("safetensors", "npz")
each_form = pytest.mark.parametrize("form", FORMS)
each_kind = pytest.mark.parametrize("kind", [Activations, SteeringVector])
Arrays = dict[str, Any]
Texts = dict[str, str]


def vector() -> SteeringVector:
    return SteeringVector(
        layers=(1, 4),
        array=np.arange(1, 7, dtype=np.float32).reshape(2, 3),
        model="m",
        trait_name="t",
        method="caa",
        train_margin=(0.1, 0.2),
        train_accuracy=(1, 0.5),
        metadata={"a": "b"},
    )


def rewrite(path: Path, arrays: Arrays, texts: Texts) -> None:
    """Write a document as somebody else might."""
    if path.suffix == ".npz":
        text = np.frombuffer(json.dumps(texts).encode(), np.uint8)
        np.savez(path, metadata=text, **arrays)
    else:
        save_file(arrays, path, metadata=texts)


def read_all(path: Path) -> tuple[Arrays, Texts]:
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    return arrays, json.loads(bytes(arrays.pop("metadata")))


def edited(
    kind: type,
    path: Path,
    edit: Callable[[Arrays, Texts], object],
    points: tuple[str, ...] = ("resid_post",),
) -> None:
    """Write a document with something about it changed."""
    made = vector() if kind is SteeringVector else whole_activations(points)
    made.save(path.with_suffix(".npz"))
    arrays, texts = read_all(path.with_suffix(".npz"))
    edit(arrays, texts)
    rewrite(path, arrays, texts)


def refusal_of(kind: Any, path: Path) -> DocumentError:
    with pytest.raises(DocumentError) as refusal:
        kind.load(path)
    assert refusal.value.path == str(path)
    assert "\n" not in str(refusal.value)
    return refusal.value


def json_bytes(document: object) -> np.ndarray:
    return np.frombuffer(json.dumps(document).encode(), np.uint8).copy()


@each_form
@each_kind
def test_another_order_of_arrays_and_more_of_them_are_read(
    tmp_path: Path, form: str, kind: Any
):
    def edit(arrays: Arrays, texts: Texts) -> None:
        texts["note"] = "unknown keys are ignored"
        arrays["aside"] = np.ones(3, np.float64)
        for name in sorted(arrays):
            arrays[name] = arrays.pop(name)

    edited(kind, tmp_path / f"a.{form}", edit)
    assert kind.load(tmp_path / f"a.{form}").model in ('a/"b"', "m")


def test_an_npz_that_was_compressed_afterwards_is_read(tmp_path: Path):
    whole_activations().save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        np.savez_compressed(tmp_path / "b.npz", **file)
    loaded = Activations.load(tmp_path / "b.npz")
    assert np.array_equal(loaded.array, whole_activations().array)


SCHEMA = "artifact schema 2 is unsupported; this Ster build reads schema 1"


@each_form
@each_kind
@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda a, t: t.update(schema_version="2"), SCHEMA),
        (
            lambda a, t: t.update(product='S"'),
            r'artifact belongs to product "S\"", not Ster',
        ),
    ],
)
def test_other_artifacts_are_refused_by_what_they_are(
    tmp_path: Path, form: str, kind: Any, edit: Any, sentence: str
):
    edited(kind, tmp_path / f"a.{form}", edit)
    assert str(refusal_of(kind, tmp_path / f"a.{form}")) == sentence


@each_form
def test_one_kind_of_document_is_not_taken_for_another(tmp_path: Path, form: str):
    path = tmp_path / f"a.{form}"
    vector().save(path)
    sentence = 'the document is "steering", not "activations"'
    assert str(refusal_of(Activations, path)) == sentence
    whole_activations().save(path)
    sentence = 'the document is "activations", not "steering"'
    assert str(refusal_of(SteeringVector, path)) == sentence


def pop(name: str) -> Callable[[Arrays, Texts], object]:
    return lambda arrays, texts: (arrays if name in arrays else texts).pop(name)


def put(name: str, value: object) -> Callable[[Arrays, Texts], object]:
    return lambda arrays, texts: arrays.update({name: np.array(value)})


def say(name: str, document: object) -> Callable[[Arrays, Texts], object]:
    return lambda arrays, texts: arrays.update({name: json_bytes(document)})


ACTIVATIONS: list[tuple[Callable[[Arrays, Texts], object], str]] = [
    *((pop(name), f"no array `{name}`") for name in ("layers", "offsets", "prompts")),
    *((pop(name), f"no array `{name}`") for name in ("activations", "prompt_index")),
    *((pop(name), f"no array `{name}`") for name in ("labels", "token_position")),
    *((pop(name), f"no array `{name}`") for name in ("in_template", "token_text")),
    *((pop(name), f"no array `{name}`") for name in ("num_tokens", "num_bos")),
    *((pop(name), f"metadata have no `{name}`") for name in ("product", "document")),
    *(
        (pop(name), f"metadata have no `{name}`")
        for name in ("schema_version", "model")
    ),
    *(
        (pop(name), f"metadata have no `{name}`")
        for name in ("points", "schema_version")
    ),
    (pop("token_id"), "does not say which tokens its rows are"),
    (
        put("layers", np.array([2, 10], np.int32)),
        "`layers` is int32 (2,), expected int64 (2,)",
    ),
    (put("layers", [2]), "`layers` is int64 (1,), expected int64 (2,)"),
    (put("layers", [10, 2]), "layers of activations must be ascending"),
    (put("offsets", [0, 2, 5]), "`offsets` and `prompt_index` say different things"),
    (put("offsets", [0, 5]), "`offsets` is int64 (2,), expected int64 (3,)"),
    (put("prompt_index", [0, 0, 1, 0, 1]), "say different things"),
    (put("prompt_index", [0, 0, 0, 1, 9]), "say different things"),
    (put("prompt_index", [-1, 0, 0, 1, 1]), "say different things"),
    (put("token_id", [1, 2, 3]), "`token_id` is int64 (3,), expected int64 (5,)"),
    (put("token_id", [1.0] * 5), "`token_id` is float64 (5,), expected int64 (5,)"),
    (put("num_bos", [1]), "`num_bos` is int64 (1,), expected int64 (2,)"),
    (put("activations", np.ones((5, 2, 3))), "`activations`"),
    (put("activations", np.ones((5, 6), np.float32)), "has 2 axes, expected 3"),
    (put("activations", np.ones((4, 2, 3), np.float32)), "`prompt_index` is int64"),
    (put("activations", np.ones((0, 2, 3), np.float32)), "`prompt_index` is int64"),
    (put("activations", np.ones((5, 2, 0), np.float32)), "need a prompt, a layer and"),
    (put("prompts", np.frombuffer(b'["a","b"', np.uint8)), "line 1 column"),
    (put("prompts", np.frombuffer(b'["\xff","b"]', np.uint8)), "invalid UTF-8 at byte"),
    (say("prompts", {"a": "b"}), "`prompts` is no list"),
    (say("prompts", ["a", 1]), "prompts[1] is no string"),
    (say("prompts", ["a"]), "expected int64 (2,)"),
    (say("token_text", ["a"]), "the columns of read tokens differ in length"),
    (lambda a, t: t.update(steered='"calm"'), "`steered` is no list"),
    (lambda a, t: t.update(steered="[1]"), "steered[0] is no string"),
    (lambda a, t: t.update(steered="["), "line 1 column"),
    (say("labels", []), "`labels` is no object"),
    (say("labels", {"n": 1}), "label n is no list"),
    (say("labels", {"n": [1]}), "label n has 1 values for 2 prompts"),
    (
        lambda a, t: t.update(points="attn_out,attn_out"),
        "no array `activations.attn_ou",
    ),
]
VECTORS: list[tuple[Callable[[Arrays, Texts], object], str]] = [
    *((pop(name), f"no array `{name}`") for name in ("layers", "directions")),
    *((pop(n), f"no array `{n}`") for n in ("train_margin", "train_accuracy")),
    *((pop(name), f"metadata have no `{name}`") for name in ("model", "trait_name")),
    *((pop(name), f"metadata have no `{name}`") for name in ("method", "metadata")),
    (put("directions", np.ones(3, np.float32)), "`directions` has the shape (3,)"),
    (put("directions", np.ones((0, 3), np.float32)), "has the shape (0, 3)"),
    (put("directions", np.ones((2, 3), np.float16)), "`directions` is float16 (2, 3)"),
    (put("directions", np.zeros((2, 3), np.float32)), "layer 1 contains only zeros"),
    (
        put("directions", np.full((2, 3), np.inf, np.float32)),
        "layer 1 contains a non-finite value",
    ),
    (put("layers", [4, 1]), "layer 1 follows layer 4; layers must ascend"),
    (put("layers", [4, 4]), "layer 4 is given twice"),
    (put("layers", [-1, 4]), "a layer is below zero"),
    (put("train_margin", np.ones(1, np.float32)), "`train_margin` is float32 (1,)"),
    (
        put("train_margin", np.full(2, np.nan, np.float32)),
        "`train_margin` contains a non-finite value",
    ),
    (lambda a, t: t.update(metadata="[]"), "`metadata` is no object"),
    (lambda a, t: t.update(metadata='{"a":1}'), "`a` is no string"),
    (lambda a, t: t.update(metadata="{"), "line 1 column"),
]


@each_form
@pytest.mark.parametrize(
    ("kind", "edit", "said"),
    [
        *((Activations, edit, said) for edit, said in ACTIVATIONS),
        *((SteeringVector, edit, said) for edit, said in VECTORS),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(
    tmp_path: Path, form: str, kind: Any, edit: Any, said: str
):
    edited(kind, tmp_path / f"a.{form}", edit)
    assert said in str(refusal_of(kind, tmp_path / f"a.{form}"))


@each_form
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_row_that_is_not_finite_is_named(tmp_path: Path, form: str, value: float):
    rows = np.ones((5, 2, 3), np.float32)
    rows[4, 1, 0] = value
    edited(Activations, tmp_path / f"a.{form}", put("activations", rows))
    refusal = refusal_of(Activations, tmp_path / f"a.{form}")
    assert str(refusal) == "layer 10 contains a non-finite value"
    assert refusal.layer == 10


@each_form
def test_the_points_of_a_document_have_one_shape(tmp_path: Path, form: str):
    points = ("resid_post", "attn_out")
    edit = put("activations.attn_out", np.ones((5, 2, 4), np.float32))
    edited(Activations, tmp_path / f"a.{form}", edit, points)
    refusal = refusal_of(Activations, tmp_path / f"a.{form}")
    assert "`activations.attn_out` is float32 (5, 2, 4)" in str(refusal)


@each_form
@each_kind
def test_a_file_that_is_missing_or_a_folder_is_named(
    tmp_path: Path, form: str, kind: Any
):
    word = "activation" if kind is Activations else "steering"
    (tmp_path / f"folder.{form}").mkdir()
    for name in (f"missing.{form}", f"folder.{form}", f"nul\0.{form}"):
        with pytest.raises(DocumentError) as refusal:
            kind.load(f"{tmp_path}/{name}")
        sentence = f"failed to read {word} artifact {tmp_path}/{name}"
        assert refusal.value.sentence == sentence


@each_form
@each_kind
@pytest.mark.parametrize("data", [b"", b"abc", b"\xff" * 40, b"\0" * 40, b"{}", b"PK"])
def test_a_file_of_something_else_is_refused(
    tmp_path: Path, form: str, kind: Any, data: bytes
):
    path = tmp_path / f"a.{form}"
    path.write_bytes(data)
    refusal = refusal_of(kind, path)
    assert refusal.sentence.startswith("invalid ")
    assert refusal.sentence.endswith(f" {path}")


@each_form
def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path, form: str):
    whole_activations().save(tmp_path / f"whole.{form}")
    data = (tmp_path / f"whole.{form}").read_bytes()
    path = tmp_path / f"a.{form}"
    for size in {*range(0, len(data), 97), len(data) - 1}:
        path.write_bytes(data[:size])
        refusal_of(Activations, path)


def test_weights_are_no_activations(tmp_path: Path):
    save_file({"w": np.ones((2, 2), np.float32)}, tmp_path / "model.safetensors")
    for kind in (Activations, SteeringVector):
        refusal = refusal_of(kind, tmp_path / "model.safetensors")
        assert "no `product`, so it is none of ster's" in refusal.causes[0]


def test_arrays_of_numpy_are_no_activations(tmp_path: Path):
    np.savez(tmp_path / "a.npz", np.ones(3))
    refusal = refusal_of(Activations, tmp_path / "a.npz")
    assert refusal.causes == ("it has no metadata of ster's",)


def test_a_hostile_header_of_safetensors_is_not_read(tmp_path: Path):
    path = tmp_path / "a.safetensors"
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", 2**26) + b"{")
        file.truncate(2**26 + 100)
    refusal = refusal_of(Activations, path)
    assert refusal.causes == ("its header would take 67108864 bytes",)


class Trap:
    """What sets itself off when it is unpickled."""

    def __reduce__(self) -> Any:
        return (pytest.fail, ("it was unpickled",))


@pytest.mark.parametrize("name", ["prompts", "activations", "aside", "metadata"])
def test_a_pickle_in_an_npz_is_never_loaded(tmp_path: Path, name: str):
    trap = np.empty(1, object)
    trap[0] = Trap()
    whole_activations().save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        arrays = {**file, name: trap}
    np.savez(tmp_path / "b.npz", **arrays)
    if name == "aside":
        assert len(Activations.load(tmp_path / "b.npz")) == 5
    else:
        refusal_of(Activations, tmp_path / "b.npz")
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as archive:
        archive.writestr("metadata.npy", pickle.dumps(Trap()))
    refusal_of(Activations, tmp_path / "c.npz")


def npy(array: np.ndarray) -> bytes:
    written = io.BytesIO()
    np.save(written, array)
    return written.getvalue()


def refused_archive(path: Path, name: str, data: bytes, **how: Any) -> str:
    """Say how an archive is refused that has one member changed."""
    whole_activations().save(path.with_name("whole.npz"))
    with (
        zipfile.ZipFile(path.with_name("whole.npz")) as whole,
        zipfile.ZipFile(path, "w", **how) as archive,
    ):
        for member in whole.namelist():
            archive.writestr(member, data if member == name else whole.read(member))
    return refusal_of(Activations, path).causes[0]


def test_a_member_of_another_size_than_its_shape_is_not_read(tmp_path: Path):
    data = npy(np.zeros((5, 2, 3), np.float32))
    huge = data.replace(b"(5, 2, 3)", b"(5, 2, 3000000000000)").replace(b" " * 12, b"")
    for wrong in (huge, data[:-4], data + b"\0" * 4, data.replace(b"5, 2", b"5,-2")):
        cause = refused_archive(tmp_path / "a.npz", "activations.npy", wrong)
        assert cause
    wrong = npy(np.zeros((5, 2, 3), np.float32))[:-4]
    cause = refused_archive(tmp_path / "a.npz", "activations.npy", wrong)
    assert cause == 'the member "activations" has another size than its shape'


def test_a_member_that_unpacks_to_a_thousandfold_is_not_unpacked(tmp_path: Path):
    bomb = npy(np.zeros(2**27, np.uint8))
    packed = {"compression": zipfile.ZIP_DEFLATED}
    cause = refused_archive(tmp_path / "a.npz", "prompts.npy", bomb, **packed)
    assert cause.startswith('the member "prompts.npy" would be 134217856 bytes out of')
    small = npy(np.full(2**20, ord(" "), np.uint8))  # as many spaces are harmless
    cause = refused_archive(tmp_path / "b.npz", "prompts.npy", small, **packed)
    assert "it is empty" in cause or "line 1" in cause


def test_members_are_packed_in_two_ways_only(tmp_path: Path):
    how = {"compression": zipfile.ZIP_LZMA}
    cause = refused_archive(tmp_path / "a.npz", "none", b"", **how)
    assert cause == 'the member "metadata.npy" is packed in another way'


def test_a_member_is_there_once(tmp_path: Path):
    whole_activations().save(tmp_path / "a.npz")
    with (
        pytest.warns(UserWarning, match="Duplicate name"),
        zipfile.ZipFile(tmp_path / "a.npz", "a") as archive,
    ):
        archive.writestr("layers.npy", npy(np.array([1, 2])))
    refusal = refusal_of(Activations, tmp_path / "a.npz")
    assert refusal.causes == ('the member "layers" is there twice',)


def test_a_changed_byte_of_a_member_is_noticed(tmp_path: Path):
    whole_activations().save(tmp_path / "a.npz")
    data = bytearray((tmp_path / "a.npz").read_bytes())
    row = whole_activations().array[0, 0].tobytes()
    data[data.index(row)] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    assert "CRC" in refusal_of(Activations, tmp_path / "a.npz").causes[0]


changes = st.lists(
    st.tuples(st.integers(0, 5000), st.binary(min_size=1, max_size=8)),
    min_size=1,
    max_size=4,
)


@settings(deadline=None)
@given(changes=changes, cut=st.integers(0, 40))
@each_form
@each_kind
def test_a_damaged_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    form: str,
    kind: Any,
    changes: list[tuple[int, bytes]],
    cut: int,
):
    path = tmp_path_factory.getbasetemp() / f"damaged.{form}"
    made = vector() if kind is SteeringVector else whole_activations()
    made.save(path)
    data = bytearray(path.read_bytes())
    for at, piece in changes:
        place = at % len(data)
        data[place : place + len(piece)] = piece
    path.write_bytes(data[: len(data) - cut])
    with suppress(DocumentError):
        kind.load(path)
