"""The activation artifact: its bytes, its round trip and its refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ster.documents.activations.value import Activations
from ster.documents.float32 import narrow
from ster.errors import (
    DocumentError,
    LayerError,
    NumericsError,
    OutputError,
    SterError,
)
from tests.activation_documents import described, write_pieces

EMPTY = "activations need a prompt, a layer and a width"
finite_f32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def activations(array: np.ndarray | None = None, **parts: Any) -> Activations:
    if array is None:
        array = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    num_prompts, num_layers, hidden_size = array.shape
    whole: dict[str, Any] = {
        "layers": tuple(range(num_layers)),
        "prompts": tuple(f"prompt {index}" for index in range(num_prompts)),
        "model": "toy",
        "hidden_size": hidden_size,
    }
    return Activations(array=array, **(whole | parts))


def bits(array: np.ndarray) -> list[int]:
    return np.ascontiguousarray(array).view(np.uint32).ravel().tolist()


GOLDEN = (
    '{"schema_version":1,"product":"ster","model":"a/\\"b\\"","model_revision":null,'
    '"hidden_size":3,"records":['
    '{"prompt":"é\\n🦙","layers":{"2":[0.1,-0.0,1.0],"10":[1e-7,3.4028235e+38,1e-45]}},'
    '{"prompt":"é\\n🦙","layers":{"2":[16777216.0,-0.33333334,0.0],'
    '"10":[7.038531e-26,-1.5,123456.79]}}]}'
)


def test_the_document_is_written_byte_by_byte_as_specified(tmp_path: Path):
    path = tmp_path / "a/out.json"
    tiny = np.array([1], dtype=np.uint32).view(np.float32)[0]
    rows = np.array([[0.1, -0.0, 1], [1e-7, 3.4028235e38, tiny]], dtype=np.float32)
    more = np.array([[16777216, -1 / 3, 0], [7.038531e-26, -1.5, 123456.789]])
    more[1, 0] = np.uint32(0x15AE43FD).reshape(1).view(np.float32)[0]
    prompts = ("é\n🦙", "é\n🦙")
    parts = described(prompts=prompts, layers=(2, 10), model='a/"b"', hidden_size=3)
    write_pieces(path, parts, rows[None], more.astype(np.float32)[None])
    assert path.read_bytes().decode() == GOLDEN


def test_a_revision_is_recorded(tmp_path: Path):
    path = tmp_path / "out.json"
    activations(model_revision="main").save(path)
    assert json.loads(path.read_bytes())["model_revision"] == "main"
    assert Activations.load(path).model_revision == "main"


def test_what_is_saved_is_what_is_loaded(tmp_path: Path):
    saved = activations(
        prompts=("a\u0000", "é"), layers=(0, 7, 11), model_revision="0" * 40
    )
    saved.save(tmp_path / "out.json")
    loaded = Activations.load(str(tmp_path / "out.json"))
    for name in ("layers", "prompts", "model", "model_revision", "hidden_size"):
        assert getattr(loaded, name) == getattr(saved, name)
    assert loaded.array.dtype == np.float32
    assert loaded.array.flags.c_contiguous
    assert bits(loaded.array) == bits(saved.array)


def test_saving_twice_gives_the_same_bytes(tmp_path: Path):
    activations().save(tmp_path / "1.json")
    Activations.load(tmp_path / "1.json").save(tmp_path / "2.json")
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / "2.json").read_bytes()


@given(hnp.arrays(np.float32, (1, 1, 12), elements=finite_f32))
def test_every_f32_survives_the_round_trip_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray
):
    path = tmp_path_factory.getbasetemp() / "round_trip.json"
    activations(array).save(path)
    assert bits(Activations.load(path).array) == bits(array)


def test_random_bit_patterns_survive_the_round_trip(tmp_path: Path):
    patterns = np.random.default_rng(7).integers(0, 2**32, 60_000, dtype=np.uint32)
    # Its shortest digits lie, read as f64, exactly halfway to its neighbour.
    patterns[0] = 0x15AE43FD
    values = patterns.view(np.float32)
    values = values[np.isfinite(values)].reshape(1, 1, -1)
    activations(values).save(tmp_path / "out.json")
    assert bits(Activations.load(tmp_path / "out.json").array) == bits(values)


def test_other_digits_than_the_shortest_become_the_nearest_f32():
    halfway_up, halfway_down = 1 + 3 * 2.0**-24, 1 + 2.0**-24
    subnormal = 3 * 2.0**-150
    values = np.array([halfway_up, halfway_down, subnormal, 0.1, 1e39, -1e300, 1e-300])
    tenth = float(np.float32(0.1))
    expected = [1 + 2.0**-22, 1.0, 2.0**-148, tenth, np.inf, -np.inf, 0.0]
    assert narrow(values).tolist() == expected
    assert narrow(-values).tolist() == [-value for value in expected]


@pytest.mark.parametrize(
    "convert",
    [
        lambda rows: np.asfortranarray(rows),
        lambda rows: np.repeat(rows, 2, axis=1)[:, ::2],
        lambda rows: rows[::-1][::-1],
        lambda rows: rows.astype(np.float64),
        lambda rows: rows.astype(np.float16),
        lambda rows: rows.astype(">f4"),
    ],
)
def test_rows_of_any_layout_are_written_as_f32(
    tmp_path: Path, convert: Callable[[np.ndarray], np.ndarray]
):
    rows = np.array([[1, 2, 3], [4, 5, 6.5]], dtype=np.float32)
    path = tmp_path / "out.json"
    parts = described(layers=(0, 1), hidden_size=3)
    write_pieces(path, parts, convert(rows)[None])
    assert Activations.load(path).array[0].tolist() == rows.tolist()


def failing_write(path: Path, *pieces: Any, **parts: Any) -> SterError:
    """Write a row that fits, then others; return what is said of it."""
    path.write_bytes(b"old")
    whole: dict[str, Any] = {"prompts": ("a", "b"), "layers": (2,)} | parts
    fits = np.ones((1, len(whole["layers"]), 2))
    with pytest.raises(SterError) as refusal:
        write_pieces(path, described(**whole), fits, *pieces)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    return refusal.value


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_a_value_that_is_not_finite_is_never_written(tmp_path: Path, value: float):
    rows = np.array([[[1, 2], [3, value], [4, value]]])
    refusal = failing_write(tmp_path / "out.json", rows, layers=(0, 2, 3))
    assert isinstance(refusal, NumericsError)
    assert str(refusal) == "layer 2 of prompt 2 is not finite"
    assert (refusal.layer, refusal.prompt) == (2, 2)


@pytest.mark.parametrize(
    ("pieces", "cause"),
    [
        ([np.ones((1, 1, 3))], "rows of shape (1, 1, 3) for 1 point of (2, 1, 2)"),
        ([np.ones((1, 2, 2))], "rows of shape (1, 2, 2) for 1 point of (2, 1, 2)"),
        ([np.ones(2)], "rows of shape (2,) for 1 point of (2, 1, 2)"),
        ([np.ones(())], "rows of shape () for 1 point of (2, 1, 2)"),
        ([()], "rows of shape none for 1 point of (2, 1, 2)"),
        ([(np.ones((1, 1, 2)),) * 2], "rows of shape (1, 1, 2), (1, 1, 2) for 1 poin"),
        ([np.ones((2, 1, 2))], "there are more rows than 2"),
        ([np.ones((1, 1, 2))] * 2, "there are more rows than 2"),
        ([], "1 row came of 2"),
    ],
)
def test_rows_that_do_not_fit_leave_the_old_file(
    tmp_path: Path, pieces: list[Any], cause: str
):
    refusal = failing_write(tmp_path / "out.json", *pieces)
    assert isinstance(refusal, OutputError)
    assert refusal.sentence == f"failed to write {tmp_path / 'out.json'}"
    assert cause in refusal.causes[0]


def test_a_layer_that_is_given_twice_is_refused():
    with pytest.raises(DocumentError, match="layers of activations must be ascending"):
        described(layers=(1, 1))


@pytest.mark.parametrize("field", ["model", "model_revision", "prompts"])
def test_a_text_that_is_no_utf8_is_refused_in_one_line(tmp_path: Path, field: str):
    text = "mod\udcffel"
    parts = {field: ("a", text) if field == "prompts" else text}
    refusal = failing_write(tmp_path / "out.json", np.ones((1, 1, 2)), **parts)
    assert isinstance(refusal, OutputError)
    assert "surrogates" in refusal.causes[0]
    assert "\n" not in str(refusal)


def test_an_exception_while_writing_passes_and_leaves_nothing(tmp_path: Path):
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_pieces(tmp_path / "a/out.json", described(), np.ones((1, 1, 2)), stop)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_vanishes_is_refused_at_the_end(tmp_path: Path):
    path = tmp_path / "a/out.json"

    def vanish():
        next(path.parent.iterdir()).unlink()
        path.parent.rmdir()

    with pytest.raises(OutputError, match=f"^failed to write {path}: No such"):
        write_pieces(path, described(), np.ones((1, 1, 2)), vanish)
    assert list(tmp_path.iterdir()) == []


VALID: dict[str, Any] = {
    "schema_version": 1,
    "product": "ster",
    "model": "toy",
    "model_revision": None,
    "hidden_size": 2,
    "records": [
        {"prompt": "a", "layers": {"0": [0, 0.5], "12": [1e-3, -1]}},
        {"prompt": "a", "layers": {"12": [1, 2], "0": [3, 4]}},
    ],
}


not_numbers: list[object] = ["1", True, [1], {}]


def set_value(value, document):
    document["records"][1]["layers"].update({"0": [1, value]})


def edited(edit: Callable[[dict[str, Any]], object]) -> bytes:
    document = json.loads(json.dumps(VALID))
    edit(document)
    return json.dumps(document).encode()


def refusal_of(path: Path, data: bytes) -> DocumentError:
    path.write_bytes(data)
    with pytest.raises(DocumentError) as refusal:
        Activations.load(path)
    return refusal.value


@pytest.mark.parametrize(
    "edit",
    [
        lambda document: None,
        lambda document: document.update(note="unknown keys are ignored"),
        lambda document: document.pop("model_revision"),
    ],
)
def test_layers_are_ordered_by_number_whatever_their_order_in_the_file(
    tmp_path: Path, edit: Callable[[dict[str, Any]], object]
):
    path = tmp_path / "in.json"
    path.write_bytes(b"\xef\xbb\xbf" + edited(edit))
    loaded = Activations.load(path)
    assert loaded.layers == (0, 12)
    assert loaded.model_revision is None
    expected = np.array([[[0, 0.5], [1e-3, -1]], [[3, 4], [1, 2]]], np.float32)
    assert bits(loaded.array) == bits(expected)


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (
            lambda d: d.update(schema_version=2, product=None, records=None),
            "artifact schema 2 is unsupported; this Ster build reads schema 1",
        ),
        (
            lambda d: d.update(schema_version=-1),
            "artifact schema -1 is unsupported; this Ster build reads schema 1",
        ),
        (
            lambda d: d.update(product='S"'),
            r'artifact belongs to product "S\"", not Ster',
        ),
        (
            lambda d: d.update(product="Ster"),
            'artifact belongs to product "Ster", not Ster',
        ),
        (lambda d: d.update(records=[]), "artifact has no records"),
        (lambda d: d["records"][0].update(layers={}), "artifact has no layers"),
        (
            lambda d: d["records"][1]["layers"].pop("0"),
            "artifact records differ in their layers",
        ),
        (
            lambda d: d["records"][1]["layers"].update({"3": [1, 2]}),
            "artifact records differ in their layers",
        ),
        (
            lambda d: d["records"][1]["layers"].update({"12": [1]}),
            "layer 12 has vector width 1, expected 2",
        ),
        (
            lambda d: d.update(hidden_size=10**15),
            "layer 0 has vector width 2, expected 1000000000000000",
        ),
        (
            lambda d: d["records"][1]["layers"].update({"12": [1, None]}),
            "layer 12 contains a non-finite value",
        ),
        (
            lambda d: d["records"][0]["layers"].update({"0": [1e39, 1]}),
            "layer 0 contains a non-finite value",
        ),
        (
            lambda d: d["records"][1]["layers"].update({"12": [1, -3.5e38]}),
            "layer 12 contains a non-finite value",
        ),
    ],
)
def test_other_artifacts_are_refused_by_what_they_are(
    tmp_path: Path, edit: Callable[[dict[str, Any]], object], sentence: str
):
    assert str(refusal_of(tmp_path / "in.json", edited(edit))) == sentence


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "it is empty"),
        (b"[]", "the document is no object"),
        (b"null", "the document is no object"),
        (json.dumps(VALID).encode()[:-1], "line 1 column"),
        (json.dumps(VALID).replace('"12"', '"0"').encode(), 'key "0" is given twice'),
        (edited(lambda d: d.pop("schema_version")), "missing field `schema_version`"),
        (edited(lambda d: d.pop("product")), "missing field `product`"),
        (edited(lambda d: d.pop("model")), "missing field `model`"),
        (edited(lambda d: d.pop("hidden_size")), "missing field `hidden_size`"),
        (edited(lambda d: d.pop("records")), "missing field `records`"),
        (edited(lambda d: d["records"][0].pop("prompt")), "missing field `prompt`"),
        (edited(lambda d: d["records"][1].pop("layers")), "missing field `layers`"),
        (
            edited(lambda d: d.update(schema_version="1")),
            "`schema_version` is no whole number",
        ),
        (
            edited(lambda d: d.update(schema_version=1.0)),
            "`schema_version` is no whole number",
        ),
        (
            edited(lambda d: d.update(schema_version=True)),
            "`schema_version` is no whole number",
        ),
        (edited(lambda d: d.update(product=None)), "`product` is no string"),
        (edited(lambda d: d.update(model=None)), "`model` is no string"),
        (edited(lambda d: d.update(model_revision=1)), "`model_revision` is no string"),
        (edited(lambda d: d.update(records={})), "`records` is no list"),
        (edited(lambda d: d["records"].append(1)), "records[2] is no object"),
        (
            edited(lambda d: d["records"][0].update(prompt=1)),
            "`prompt` is no string",
        ),
        (
            edited(lambda d: d["records"][0].update(layers=[])),
            "`layers` is no object",
        ),
        (
            edited(lambda d: d["records"][0]["layers"].update({"01": [1, 2]})),
            'layer "01" is no index',
        ),
        (
            edited(lambda d: d["records"][0]["layers"].update({"-1": [1, 2]})),
            'layer "-1" is no index',
        ),
        (
            edited(lambda d: d["records"][0]["layers"].update({"9" * 5000: [1, 2]})),
            "is no index",
        ),
        (
            edited(lambda d: d["records"][0]["layers"].update({"0": 1})),
            "layer 0 is no list",
        ),
        *(
            (
                edited(partial(set_value, v)),
                "layer 0 contains what is no number",
            )
            for v in not_numbers
        ),
    ],
)
def test_what_is_no_artifact_is_refused_with_the_place(
    tmp_path: Path, data: bytes, cause: str
):
    path = tmp_path / "in.json"
    refusal = refusal_of(path, data)
    assert refusal.sentence == f"invalid activation artifact JSON in {path}"
    assert len(refusal.causes) == 1
    assert cause in refusal.causes[0]


@pytest.mark.parametrize("name", ["missing.json", ".", "nul\0"])
def test_an_unreadable_artifact_is_named(tmp_path: Path, name: str):
    path = f"{tmp_path}/{name}"
    with pytest.raises(DocumentError) as refusal:
        Activations.load(path)
    assert refusal.value.sentence == f"failed to read activation artifact {path}"


def test_a_layer_is_a_view_found_by_its_index():
    whole = activations(layers=(2, 5, 30))
    view = whole.layer(5)
    assert view.tolist() == [[2, 3], [8, 9]]
    assert np.shares_memory(view, whole.array)
    sentence = "^layer 1 was not read, only layers 2, 5, 30$"
    with pytest.raises(LayerError, match=sentence):
        whole.layer(1)


def test_it_shows_what_it_holds_and_counts_prompts():
    whole = activations()
    assert len(whole) == 2
    assert repr(whole) == (
        "Activations(model='toy', 2 prompts, 3 layers 0 to 2, hidden_size=2)"
    )


@pytest.mark.parametrize(
    ("array", "parts", "sentence"),
    [
        (np.ones((1, 1, 2)), {}, "activations must be float32 (1, 1, 2), not float64"),
        (None, {"hidden_size": 3}, r"activations must be float32 (2, 3, 3), not float"),
        (None, {"prompts": ("a",)}, "activations must be float32 (1, 3, 2)"),
        (None, {"layers": (0, 1)}, "activations must be float32 (2, 2, 2)"),
        (None, {"layers": (0, 2, 1)}, "layers of activations must be ascending"),
        (None, {"layers": (0, 1, 1)}, "layers of activations must be ascending"),
        (np.ones((0, 1, 2), np.float32), {}, EMPTY),
        (np.ones((1, 0, 2), np.float32), {}, EMPTY),
        (np.ones((1, 1, 0), np.float32), {}, EMPTY),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    array: np.ndarray | None, parts: dict[str, Any], sentence: str
):
    with pytest.raises(DocumentError) as refusal:
        activations(array, **parts)
    assert str(refusal.value).startswith(sentence)


def test_values_that_are_not_finite_are_refused():
    with pytest.raises(NumericsError, match="not finite"):
        activations(np.full((1, 1, 2), np.nan, np.float32))
