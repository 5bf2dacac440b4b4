"""Steering vectors: arithmetic that remembers, and artifacts bit for bit."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ster import SteeringVector
from ster.errors import (
    DirectionError,
    DocumentError,
    LayerError,
    OutputError,
    UsageError,
)

KEYS = [
    "schema_version",
    "product",
    "model",
    "model_revision",
    "precision",
    "chat_template",
    "trait_name",
    "method",
    "hidden_size",
    "vectors",
    "metadata",
]


def make(layers=(1, 3), width=4, seed=0, **changes) -> SteeringVector:
    generator = np.random.default_rng(seed)
    fields: dict[str, Any] = {
        "array": generator.standard_normal((len(layers), width)).astype(np.float32),
        "model": "toy",
        "precision": "f32",
        "chat_template": "absent",
        "trait_name": "calm",
        "method": "caa",
        "train_margin": tuple(0.1 * (layer + 1) for layer in layers),
        "train_accuracy": (0.875,) * len(layers),
        "metadata": {"pair_count": "8"},
    }
    return SteeringVector(layers=layers, **(fields | changes))


def artifact(**changes: object) -> dict[str, object]:
    document: dict[str, object] = {
        "schema_version": 1,
        "product": "ster",
        "model": "toy",
        "trait_name": "calm",
        "method": "caa",
        "hidden_size": 2,
        "vectors": [entry(0), entry(2)],
    }
    kept = (document | changes).items()
    return {key: value for key, value in kept if value is not ...}


def entry(layer: object, values: object = (0.6, 0.8), **changes: object):
    fields = {"layer": layer, "values": values, "train_margin": 1, "train_accuracy": 1}
    return {k: v for k, v in (fields | changes).items() if v is not ...}


def test_the_document_has_its_keys_in_order_and_the_shortest_digits(tmp_path):
    path = tmp_path / "made" / "v.json"
    array = np.array([[0.1, -1e-10], [3.0, 16777216.0]], np.float32)
    make(width=2, array=array, model_revision="abc", trait_name="Größe").save(path)
    text = path.read_text(encoding="utf-8")
    assert text == (
        '{"schema_version":1,"product":"ster","model":"toy","model_revision":"abc",'
        '"precision":"f32","chat_template":"absent","trait_name":"Größe",'
        '"method":"caa","hidden_size":2,"vectors":['
        '{"layer":1,"values":[0.1,-1e-10],"train_margin":0.2,"train_accuracy":0.875},'
        '{"layer":3,"values":[3.0,16777216.0],"train_margin":0.4,'
        '"train_accuracy":0.875}],"metadata":{"pair_count":"8"}}'
    )
    assert list(json.loads(text)) == KEYS


def test_saving_and_loading_is_bitwise(tmp_path):
    generator = np.random.default_rng(5)
    bits = generator.integers(0, 2**32, (3, 500), np.uint32)
    bits[(bits & 0x7F800000) == 0x7F800000] = 0x00000001  # the smallest, not NaN
    vector = make(layers=(0, 4, 11), array=bits.view(np.float32))
    vector.save(tmp_path / "a.json")
    again = SteeringVector.load(tmp_path / "a.json")
    assert again.array.tobytes() == vector.array.tobytes()
    again.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_what_may_be_missing_may_and_what_is_unknown_is_ignored(tmp_path):
    path = tmp_path / "v.json"
    path.write_text(json.dumps(artifact(later=[1], vectors=[entry(0, new={})])))
    vector = SteeringVector.load(path)
    assert (vector.precision, vector.chat_template) == (None, None)
    assert (vector.model_revision, vector.metadata) == (None, {})
    assert vector.direction(0).tolist() == np.array([0.6, 0.8], "f4").tolist()


SCHEMA = "artifact schema 2 is unsupported; this Ster build reads schema 1"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"schema_version": 2}, SCHEMA),
        ({"schema_version": 2, "vectors": ...}, SCHEMA),
        ({"product": 'o"x'}, 'artifact belongs to product "o\\"x", not Ster'),
        ({"vectors": []}, "artifact has no steering vectors"),
        (
            {"vectors": [entry(0), entry(2, [1, 2, 3])]},
            "layer 2 has vector width 3, expected 2",
        ),
        ({"hidden_size": 3}, "layer 0 has vector width 2, expected 3"),
        (
            {"vectors": [entry(0, [1, None])]},
            "layer 0 contains a non-finite value",
        ),
        ({"vectors": [entry(5, [1, 1e39])]}, "layer 5 contains a non-finite value"),
        (
            {"vectors": [entry(5, train_margin=1e39)]},
            "layer 5 contains a non-finite value",
        ),
        ({"vectors": [entry(1, [0, 0.0])]}, "layer 1 contains only zeros"),
        ({"vectors": [entry(1, [1e-60, 0])]}, "layer 1 contains only zeros"),
        ({"vectors": [entry(1), entry(1)]}, "layer 1 is given twice"),
        (
            {"vectors": [entry(3), entry(1)]},
            "layer 1 follows layer 3; layers must ascend",
        ),
    ],
)
def test_an_artifact_that_cannot_steer_is_refused_by_name(tmp_path, changes, sentence):
    path = tmp_path / "v.json"
    path.write_text(json.dumps(artifact(**changes)))
    with pytest.raises(DocumentError) as caught:
        SteeringVector.load(path)
    assert (caught.value.sentence, caught.value.causes) == (sentence, ())


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        *(
            ({name: ...}, f"missing field `{name}`")
            for name in artifact()
            if name != "vectors"
        ),
        ({"vectors": ...}, "missing field `vectors`"),
        ({"model": None}, "`model` is no string"),
        ({"schema_version": True}, "`schema_version` is no whole number"),
        ({"schema_version": "1"}, "`schema_version` is no whole number"),
        ({"hidden_size": 0}, "`hidden_size` is below one"),
        ({"precision": 32}, "`precision` is no string"),
        ({"metadata": {"a": 1}}, "`a` is no string"),
        ({"metadata": []}, "`metadata` is no object"),
        ({"vectors": {}}, "`vectors` is no list"),
        ({"vectors": [3]}, "vectors[0] is no object"),
        ({"vectors": [entry(-1)]}, "`layer` is below zero"),
        ({"vectors": [entry("0")]}, "`layer` is no whole number"),
        ({"vectors": [entry(0, ["1", 2])]}, "layer 0 contains what is no number"),
        ({"vectors": [entry(0, [True, 2])]}, "layer 0 contains what is no number"),
        ({"vectors": [entry(0, "12")]}, "layer 0 is no list"),
        ({"vectors": [entry(0, ...)]}, "layer 0 is no list"),
        ({"vectors": [entry(0, train_margin=...)]}, "missing field `train_margin`"),
        (
            {"vectors": [entry(0, train_accuracy="1")]},
            "`train_accuracy` is no number",
        ),
    ],
)
def test_another_form_is_invalid_json(tmp_path, changes, cause):
    path = tmp_path / "v.json"
    path.write_text(json.dumps(artifact(**changes)))
    with pytest.raises(DocumentError) as caught:
        SteeringVector.load(path)
    assert caught.value.sentence == f"invalid steering artifact JSON in {path}"
    assert caught.value.causes == (cause,)


@pytest.mark.parametrize("text", ["", "[", "NaN", '{"a": 1, "a": 1}', "{} {}"])
def test_what_is_no_json_is_refused(tmp_path, text):
    path = tmp_path / "v.json"
    path.write_text(text)
    with pytest.raises(DocumentError) as caught:
        SteeringVector.load(path)
    assert caught.value.sentence == f"invalid steering artifact JSON in {path}"


def test_nan_in_the_values_is_no_json(tmp_path):
    path = tmp_path / "v.json"
    path.write_text(json.dumps(artifact(vectors=[entry(0, [float("nan"), 1])])))
    with pytest.raises(DocumentError, match="^invalid steering artifact JSON in "):
        SteeringVector.load(path)


def test_an_artifact_that_is_not_there_is_refused():
    with pytest.raises(DocumentError) as caught:
        SteeringVector.load("none.json")
    assert caught.value.sentence == "failed to read steering artifact none.json"
    assert caught.value.causes == ("No such file or directory (os error 2)",)


def test_a_parent_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError) as caught:
        make().save(tmp_path / "file" / "deep" / "v.json")
    assert caught.value.sentence == f"failed to create {tmp_path}/file/deep"
    assert caught.value.causes == ("Not a directory (os error 20)",)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "v.json").mkdir()
    with pytest.raises(OutputError) as caught:
        make().save(tmp_path / "v.json")
    path = tmp_path / "v.json"
    assert caught.value.sentence == f"failed to write steering artifact {path}"
    assert caught.value.causes == ("Is a directory (os error 21)",)


def test_a_refused_save_leaves_the_old_file_and_no_new_directory(tmp_path):
    old = tmp_path / "v.json"
    old.write_text("old")
    for path in (old, tmp_path / "new" / "v.json"):
        with pytest.raises(DocumentError, match="^layer 1 contains only zeros$"):
            (make() * 0.0).save(path)
    with pytest.raises(OutputError):
        make(model="\ud800").save(tmp_path / "new" / "v.json")
    assert {entry.name for entry in tmp_path.iterdir()} == {"v.json"}
    assert old.read_text() == "old"


def test_a_new_artifact_obeys_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        make().save(tmp_path / "v.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path(tmp_path / "v.json").stat().st_mode) == 0o640


@pytest.mark.parametrize("factor", [4.0, -2, np.float64(0.5), np.float32(3), 0])
def test_scaling_from_either_side_keeps_where_it_comes_from(factor):
    vector = make()
    for scaled in (vector * factor, factor * vector):
        assert scaled.array.dtype == np.float32
        assert (scaled.array == vector.array * np.float32(factor)).all()
        assert scaled.metadata == {"pair_count": "8", "scale": f"{factor:g}"}
        assert (scaled.model, scaled.layers) == ("toy", (1, 3))
        assert scaled.train_margin == vector.train_margin
    assert vector.metadata == {"pair_count": "8"}


@pytest.mark.parametrize("divisor", [4, -0.5, np.float64(8)])
def test_division_is_scaling_by_one_over_it(divisor):
    divided, scaled = make() / divisor, make() * (1 / divisor)
    assert (divided.array == scaled.array).all()
    assert divided.metadata == scaled.metadata


@pytest.mark.parametrize("divisor", [0, -0.0, float("nan"), 1e-320])
def test_what_cannot_be_divided_by_is_refused(divisor):
    with pytest.raises(DirectionError, match="cannot be divided by"):
        _ = make() / divisor


def test_vectors_add_up_with_sum():
    vectors = [make(seed=seed) for seed in range(3)]
    total: Any = sum(vectors)
    assert (total.array == (vectors[0] + vectors[1] + vectors[2]).array).all()


def test_scales_multiply_and_signs_flip():
    assert ((make() * 4) * -0.5).metadata["scale"] == "-2"
    assert (-make()).metadata["scale"] == "-1"
    back = -make()
    assert (-back).array.tobytes() == make().array.tobytes()


@pytest.mark.parametrize("scale", ["abc", "", "nan", "inf", "1e999"])
def test_a_scale_that_is_no_number_counts_as_absent(scale):
    vector = make(metadata={"scale": scale})
    assert (vector * 2).metadata["scale"] == "2"
    assert (vector + make()).metadata["sum"] == "calm (caa) + calm (caa)"
    assert "scale" not in repr(vector)


def test_a_sum_is_taken_layer_by_layer():
    one, other = make(layers=(0, 2)), make(layers=(2, 5), seed=1, trait_name="kind")
    both = one + other * 2
    assert both.layers == (0, 2, 5)
    assert (both.direction(0) == one.direction(0)).all()
    assert (both.direction(2) == one.direction(2) + 2 * other.direction(2)).all()
    assert (both.direction(5) == 2 * other.direction(5)).all()
    assert both.trait_name == "calm + kind"
    assert both.metadata == {"sum": "calm (caa) + 2 × kind (caa)"}
    assert list(both.train_margin) == [0, 0, 0]
    assert (-both).metadata["scale"] == "-1"
    assert (both + one).metadata["sum"] == (
        "(calm (caa) + 2 × kind (caa)) + calm (caa)"
    )


def test_what_is_added_and_taken_away_is_gone():
    one, other = make(), make(seed=1)
    assert (one + other - other).array == pytest.approx(one.array, abs=1e-6)


def test_a_difference_from_itself_is_zero_and_can_still_steer_by_nothing():
    assert not (make() - make()).array.any()


def test_one_pair_is_one_pair():
    assert repr(make(metadata={"pair_count": "1"})).endswith("hidden_size=4, 1 pair)")
    assert repr(make()).endswith("hidden_size=4, 8 pairs)")


def test_what_is_taken_away_is_named_so():
    calm, kind, loud = (make(trait_name=name) for name in ("calm", "kind", "loud"))
    assert (calm - kind).trait_name == "calm - kind"
    assert (calm * 4 + kind * -2).trait_name == "calm - kind"
    assert (calm * -1 + kind).trait_name == "-calm + kind"
    assert (calm - (kind - loud)).trait_name == "calm - (kind - loud)"
    assert (calm + kind - loud).trait_name == "calm + kind - loud"
    assert (calm - make(method="pca", trait_name="calm")).trait_name == "calm - calm"
    assert (-calm - calm).trait_name == "-calm"
    assert (calm - (calm + calm)).trait_name == "calm - calm"


def test_what_two_vectors_do_not_share_is_left_open():
    other = make(precision="f16", model_revision="r", method="pca")
    both = make() + other
    assert (both.precision, both.model_revision) == (None, None)
    assert both.chat_template == "absent"
    assert both.method == "caa + pca"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"model": "other"}, 'model is "toy" and "other"'),
        ({"width": 8}, 'hidden_size is "4" and "8"'),
    ],
)
def test_vectors_of_different_models_are_not_added(other, words):
    vector = make()
    for combine in (vector.__add__, vector.__sub__):
        with pytest.raises(DirectionError) as caught:
            combine(make(**other))
        assert caught.value.sentence == (
            f"vectors of different models cannot be added: {words}"
        )


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), 10**400, -(10**400)])
def test_a_strength_must_be_finite(factor):
    with pytest.raises(DirectionError):
        _ = make() * factor


def test_a_scale_that_overflows_is_refused():
    with pytest.raises(DocumentError, match="not finite"):
        _ = make() * 1e39


@pytest.mark.parametrize("word", ["2", "0.05n", "x"])
def test_a_strength_that_is_spelled_is_for_at(word):
    for multiply in (
        lambda: make() * word,
        lambda: word * make(),
        lambda: make() / word,
    ):
        with pytest.raises(UsageError, match="multiplied by a number, not") as refused:
            multiply()
        assert refused.value.causes == (
            'vector.at("0.05n") takes a strength as it is spelled',
        )


@pytest.mark.parametrize("other", [True, None, np.ones(4, "f4")])
def test_other_things_do_not_multiply(other):
    with pytest.raises(TypeError):
        _ = make() * other
    with pytest.raises(TypeError):
        _ = other * make()
    with pytest.raises(TypeError):
        _ = make() / other


@pytest.mark.parametrize("anything", [1, 0.0, False, "0", None])
def test_other_things_do_not_add(anything):
    with pytest.raises(TypeError):
        _ = make() + anything
    with pytest.raises(TypeError):
        _ = make() - anything
    with pytest.raises(TypeError):
        _ = anything + make()


def test_a_layer_is_looked_at_without_a_copy_or_refused():
    vector = make()
    assert np.shares_memory(vector.direction(3), vector.array)
    with pytest.raises(LayerError) as caught:
        vector.direction(2)
    assert caught.value.sentence == "the vector has no layer 2, only layers 1, 3"


def test_the_repr_says_what_it_is():
    assert repr(make(layers=(1, 2, 3)) * 4) == (
        "SteeringVector('calm', caa, layers 1 to 3, model='toy', hidden_size=4, "
        "8 pairs, scale=4)"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": ()},
        {"layers": (3, 1)},
        {"layers": (1, 1)},
        {"array": np.ones((3, 4), "f4")},
        {"array": np.ones((2, 0), "f4")},
        {"array": np.ones((2, 4))},
        {"array": np.ones(4, "f4")},
        {"array": np.full((2, 4), np.nan, "f4")},
    ],
)
def test_parts_that_do_not_fit_are_refused(changes):
    fields = {"layers": (1, 3)} | changes
    layers = fields.pop("layers")
    array = fields.pop("array", np.ones((len(layers), 4), "f4"))
    with pytest.raises(DocumentError):
        make(layers=layers, array=array)


ONE_EACH = "must be one number for each layer"
NOT_FINITE = "holds a value that is not finite"


@pytest.mark.parametrize("name", ["train_margin", "train_accuracy"])
@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ((1.0,), ONE_EACH),
        ((1.0, 1.0, 1.0), ONE_EACH),
        ((1.0, "2"), ONE_EACH),
        ((1.0, float("inf")), NOT_FINITE),
        ((float("nan"), 1.0), NOT_FINITE),
        ((1.0, 1e39), NOT_FINITE),
        ((1.0, 10**400), NOT_FINITE),
    ],
)
def test_training_numbers_that_no_artifact_holds_are_refused(name, numbers, sentence):
    with pytest.raises(DocumentError) as caught:
        make(**{name: numbers})
    assert caught.value.sentence == f"{name} {sentence}"


@pytest.mark.parametrize("metadata", [{"a": 1}, {1: "a"}, {"a": None}, ["a"], None])
def test_metadata_that_are_no_strings_are_refused(metadata):
    with pytest.raises(DocumentError, match="^metadata must be strings by strings$"):
        make(metadata=metadata)


def test_some_layers_are_a_vector_with_their_norms():
    vector = make((1, 3, 4)).with_norms([2.0, 4.0, 8.0])
    part = vector.take_layers("3..5")
    assert part.layers == (3, 4)
    assert (part.array == vector.array[1:]).all()
    assert part.residual_norms == (4.0, 8.0)
    assert part.train_margin == vector.train_margin[1:]
    assert part.at("0.5n").array == pytest.approx(vector.at("0.5n").array[1:])
    assert vector.take_layers(1).layers == (1,)
    assert make((1, 3)).take_layers([3]).residual_norms is None
    with pytest.raises(LayerError, match="the vector has no layer 2, only layers 1, 3"):
        make((1, 3)).take_layers([2])
