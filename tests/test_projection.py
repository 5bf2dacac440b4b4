"""Where steering moves pairs: rows whose numbers are known, and those of the toy."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ster
from ster import Intervention, PairSet
from ster.errors import DirectionError, DocumentError, LayerError, UsageError
from ster.reporting import SterWarning
from ster.vectors.components import principal_components
from ster.vectors.projection import Projection, project_pairs
from ster.vectors.selection import PairRows
from tests import made


def rows(*pairs: tuple[list[float], list[float]]) -> PairRows:
    """Make rows of one layer, (num_pairs, 1, hidden_size) of each side."""
    sides = np.array(pairs, np.float32)[:, :, None]
    return PairRows(positive=sides[:, 0], negative=sides[:, 1])


def project(unsteered: PairRows, steered: PairRows, **how: Any) -> Projection:
    steer: dict[str, Any] = {
        "vector": made.vector((1,), array=np.array([[0, 2, 0]], "f4")),
        "strength": 2.0,
        **how,
    }
    components = steer.pop("components", 2)
    return project_pairs(
        Intervention(**steer),
        1,
        components,
        unsteered=unsteered,
        steered=steered,
        chat_template="absent",
    )


# Around (5, 1, 0) along the first axis, and a quarter as far along the second.
UNSTEERED = rows(([9, 1, 0], [1, 1, 0]), ([5, 2, 0], [5, 0, 0]))
STEERED = rows(([9, 2, 0], [2, 2, 0]), ([5, 4, 0], [5, -1, 0]))


def test_rows_are_placed_on_the_components_of_the_unsteered_ones():
    found = project(UNSTEERED, STEERED)
    assert found.explained == pytest.approx([32 / 34, 2 / 34])
    unsteered = [[[4, 0], [-4, 0]], [[0, 1], [0, -1]]]
    steered = [[[4, 1], [-3, 1]], [[0, 3], [0, -2]]]
    np.testing.assert_allclose(found.coordinates, [unsteered, steered], atol=1e-9)


def test_moves_along_the_direction_count_in_the_stream_units():
    # Of four rows, by 1, 1, 2 and -1 along the second axis; its length of 2 is none.
    assert project(UNSTEERED, STEERED).shift_along_direction == pytest.approx(3 / 4)


@pytest.mark.parametrize(
    "vector", [made.vector((2,)), made.vector((1,), array=np.zeros((1, 6), "f4"))]
)
def test_there_is_no_shift_along_a_direction_that_is_not_there(vector):
    assert project(UNSTEERED, STEERED, vector=vector).shift_along_direction is None


def test_negative_sides_are_measured_from_the_mean_of_positive_ones():
    found = project(UNSTEERED, STEERED)
    # The mean is (7, 1.5, 0).
    assert found.unsteered_distance == pytest.approx(
        (np.hypot(6, 0.5) + np.hypot(2, 1.5)) / 2
    )
    assert found.steered_distance == pytest.approx(
        (np.hypot(5, 0.5) + np.hypot(2, 2.5)) / 2
    )
    assert found.moved_toward_positive == 0.5


def test_there_are_no_more_components_than_rows_span():
    assert len(project(UNSTEERED, STEERED, components=9).explained) == 2
    one = project(rows(([1, 0, 0], [3, 4, 0])), rows(([1, 0, 0], [1, 0, 0])))
    assert one.explained == pytest.approx([1])
    half = np.sqrt(20) / 2
    expected = [[[[-half], [half]]], [[[-half], [-half]]]]
    np.testing.assert_allclose(one.coordinates, expected)


@pytest.mark.parametrize("number", [0.1, 1e8, 0.0])
def test_rows_that_are_alike_have_no_component(number):
    alike = rows(*[([number] * 3, [number] * 3)] * 3)
    with pytest.raises(DirectionError, match="rows of these pairs at layer 1 are all"):
        project(alike, alike)


def test_components_are_those_of_a_singular_value_decomposition():
    generator = np.random.default_rng(0)
    for shape in ((5, 12), (20, 4)):
        given = generator.standard_normal(shape).astype(np.float32)
        found = principal_components(given, 3)
        centred = given.astype("f8") - given.mean(axis=0, dtype="f8")
        _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
        np.testing.assert_allclose(
            found.explained, sizes[:3] ** 2 / np.sum(sizes**2), atol=1e-12
        )
        signs = np.sign(axes[np.arange(3), np.abs(axes[:3]).argmax(axis=1)])
        np.testing.assert_allclose(found.axes, axes[:3] * signs[:, None], atol=1e-9)


def test_the_document_has_the_keys_of_the_contract():
    document = project(UNSTEERED, STEERED, components=1).document
    points = document.pop("points")
    assert document == {
        "chat_template": "absent",
        "explained": [pytest.approx(32 / 34)],
        "layer": 1,
        "model": "toy",
        "negative_distance_to_positive": {
            "steered": pytest.approx(4.11325, abs=1e-5),
            "unsteered": pytest.approx(4.260399, abs=1e-5),
        },
        "negatives_moved_toward_positive": 0.5,
        "pair_count": 2,
        "shift_along_direction": 0.75,
        "strength": 2.0,
        "trait_name": "calm",
    }
    assert points == [
        {
            "coordinates": [pytest.approx(place, abs=1e-9)],
            "pair": pair,
            "side": side,
            "steered": steered,
        }
        for pair, side, steered, place in [
            (0, "positive", False, 4),
            (0, "negative", False, -4),
            (1, "positive", False, 0),
            (1, "negative", False, 0),
            (0, "positive", True, 4),
            (0, "negative", True, -3),
            (1, "positive", True, 0),
            (1, "negative", True, 0),
        ]
    ]
    json.dumps(document)


def test_a_strength_in_norms_is_no_number_and_has_its_word():
    document = project(UNSTEERED, STEERED, strength="0.5n").document
    assert (document["strength"], document["strength_word"]) == (None, "0.5n")


def test_a_projection_shows_itself():
    found = project(UNSTEERED, STEERED)
    assert repr(found) == (
        "Projection('calm', strength 2, read at layer 1, 2 pairs, shift 0.75, 0.5 of "
        "negative sides moved closer)"
    )
    page = found._repr_html_()
    assert "component 1 (94%)" in page
    assert "negative sides, distance to the positive mean" in page


@pytest.mark.parametrize("strength", [2, "0.5n"])
def test_the_toy_moves_as_its_steered_rows_say(toy, calm, device, strength):
    runtime = ster.load(toy, device=device)
    vector = runtime.train(calm)
    found = runtime.project(calm, vector, layer=3, strength=strength, components=3)
    before = runtime.activations(calm, 3).layer(3).astype("f8")
    steered = runtime.activations(calm, 3, steer=(vector, strength))
    after = steered.layer(3).astype("f8")
    assert np.abs(after - before).max() > 0.1
    direction = vector.direction(3).astype("f8")
    shift = (after - before).mean(axis=0) @ direction / np.linalg.norm(direction)
    assert found.shift_along_direction == pytest.approx(shift, rel=1e-4)
    target = before[0::2].mean(axis=0)
    was, now = (np.linalg.norm(e[1::2] - target, axis=1) for e in (before, after))
    assert found.unsteered_distance == pytest.approx(was.mean(), rel=1e-4)
    assert found.steered_distance == pytest.approx(now.mean(), rel=1e-4)
    assert found.moved_toward_positive == np.mean(now < was)
    mean = before.mean(axis=0)
    _, sizes, axes = np.linalg.svd(before - mean, full_matrices=False)
    shares = sizes[:3] ** 2 / np.sum(sizes**2)
    assert found.explained == pytest.approx(shares, rel=1e-4)
    for index, each in enumerate((before, after)):
        # Either direction of an axis will do; pairs one after the other.
        places = np.abs((each - mean) @ axes[:3].T)
        drawn = np.abs(found.coordinates[index].reshape(-1, 3))
        np.testing.assert_allclose(drawn, places, atol=2e-3)


WAYS: list[dict[str, Any]] = [
    {"how": "replace"},
    {"how": "remove", "strength": 0.5, "layers": [1]},
    {"how": "clamp", "strength": 0.25, "where": "-2.."},
    {"how": "add-below", "below": "0.01n", "keep_norm": True},
    {"strength": "0.5n", "where": "last"},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_vector_moves_pairs_however_it_is_applied(toy, calm, device, way):
    runtime = ster.load(toy, device=device)
    steer = Intervention(runtime.train(calm, layers=[1, 2]), **way)
    found = runtime.project(calm, steer, layer=3, components=3)
    before = runtime.activations(calm, 3).layer(3).astype("f8")
    after = runtime.activations(calm, 3, steer=steer).layer(3).astype("f8")
    added = runtime.activations(calm, 3, steer=(steer.vector, steer.strength))
    assert np.abs(after - added.layer(3)).max() > 0.01
    mean, target = before.mean(axis=0), before[0::2].mean(axis=0)
    was, now = (np.linalg.norm(e[1::2] - target, axis=1) for e in (before, after))
    assert found.unsteered_distance == pytest.approx(was.mean(), rel=1e-4)
    assert found.steered_distance == pytest.approx(now.mean(), rel=1e-4)
    assert found.moved_toward_positive == np.mean(now < was)
    axes = np.linalg.svd(before - mean, full_matrices=False)[2][:3]
    for index, each in enumerate((before, after)):
        # Either direction of an axis will do.
        drawn = np.abs(found.coordinates[index].reshape(-1, 3))
        np.testing.assert_allclose(drawn, np.abs((each - mean) @ axes.T), atol=2e-3)


def test_answers_are_moved_where_they_are_generated(cpu, calm):
    asked = PairSet.of(replace(pair, prompt="describe the lake .") for pair in calm)
    vector = cpu.train(asked, layers=[1])
    steer = Intervention(vector, 2.0, where="generated")
    found = cpu.project(asked, steer, layer=3, strength=2)
    after = cpu.activations(asked, 3, steer=steer.at(2)).layer(3).astype("f8")
    target = cpu.activations(asked, 3).layer(3)[0::2].mean(axis=0, dtype="f8")
    distances = np.linalg.norm(after[1::2] - target, axis=1)
    assert found.steered_distance == pytest.approx(distances.mean(), rel=1e-5)
    assert found.document["strength"] == 4.0
    unasked = Intervention(cpu.train(calm, layers=[1]), where="generated")
    with pytest.raises(UsageError, match="generated means no token of text 1"):
        cpu.project(calm, unasked, layer=3)


def test_the_report_says_how_the_vector_was_applied():
    way: dict[str, Any] = {"how": "add-below", "where": "-2..", "below": "0.1n"}
    found = project(UNSTEERED, STEERED, **way, layers=[np.int64(1)])
    assert found.document["intervention"] == {
        "how": "add-below",
        "where": "-2..",
        "below": "0.1n",
        "keep_norm": False,
        "layers": [1],
    }
    assert "intervention" not in project(UNSTEERED, STEERED).document
    said = "add-below, below 0.1n, where -2.., at layer 1"
    assert f"strength 2 ({said})" in repr(found)
    assert said in found._repr_html_()
    json.dumps(found.document)


def test_rows_are_those_of_the_tokens_that_the_vector_was_fitted_to(cpu, calm):
    vector = cpu.train(calm, tokens="mean")
    means = cpu.activations(calm, 3, tokens="mean").layer(3).astype("f8")
    lasts = cpu.activations(calm, 3).layer(3).astype("f8")
    found = cpu.project(calm, vector, layer=3)
    with pytest.warns(SterWarning, match="trained on tokens mean .* reads tokens last"):
        other = cpu.project(calm, vector, layer=3, tokens="last")
    for each, rows in ((found, means), (other, lasts)):
        target = rows[0::2].mean(axis=0)
        distances = np.linalg.norm(rows[1::2] - target, axis=1)
        assert each.unsteered_distance == pytest.approx(distances.mean(), rel=1e-6)


def test_norms_that_a_vector_lacks_are_measured_on_the_pairs(cpu, calm):
    vector = cpu.train(calm, tokens="mean")
    bare = vector.replaced(metadata={"tokens": "mean"})
    # The norms that training notes are those of the same rows.
    one, other = (
        cpu.project(calm, each, layer=2, strength="0.2n") for each in (vector, bare)
    )
    np.testing.assert_allclose(one.coordinates, other.coordinates, atol=1e-4)


def test_strength_zero_moves_nothing(cpu, calm):
    found = cpu.project(calm, cpu.train(calm), layer=3, strength=0)
    assert found.shift_along_direction == 0
    assert found.moved_toward_positive == 0
    assert np.array_equal(found.coordinates[0], found.coordinates[1])


def test_a_vector_that_begins_where_rows_are_read_moves_nothing_and_it_is_said(
    cpu, calm
):
    vector = cpu.train(calm, layers=[2, 3])
    with pytest.warns(SterWarning, match="the vector begins at layer 2: nothing moves"):
        found = cpu.project(calm, vector, layer=2)
    assert found.shift_along_direction == 0


def test_one_pair_lies_on_one_line(cpu, calm):
    one = PairSet.of([*calm][:1])
    found = cpu.project(one, cpu.train(calm), layer=3, components=5)
    assert found.explained == pytest.approx([1])
    assert found.coordinates.shape == (2, 1, 2, 1)


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"layer": 4}, LayerError, "layer 4 is outside the model's 0..3 range"),
        ({"layer": -1}, LayerError, "layer -1 is outside the model's 0..3 range"),
        ({"components": 0}, UsageError, "components must be at least 1, not 0"),
        (
            {"components": 1.5},
            UsageError,
            "components must be a whole number, not 1.5",
        ),
        ({"strength": "x"}, UsageError, "invalid strength"),
        ({"strength": float("nan")}, DirectionError, "a strength must be finite"),
        ({"strength": 1e30}, DirectionError, "the vector added after layer 0 is too"),
        (
            {"pairs": PairSet.of([("a calm sea", "a calm sea")] * 3)},
            DirectionError,
            "the rows of these pairs at layer 3 are all alike",
        ),
        ({"pairs": [("a", "b")]}, UsageError, "pairs must be a PairSet, not list"),
        ({"vector": "calm.json"}, UsageError, "vector must be a SteeringVector"),
        (
            {"vector": made.vector((1,), model="other")},
            DocumentError,
            'artifact was trained for model "other", current model is ',
        ),
        (
            {"vector": made.vector((1,), model=...)},
            DocumentError,
            "artifact width 6 does not match model width 64",
        ),
    ],
)
def test_what_cannot_be_projected_is_refused(cpu, calm, change, error, sentence):
    vector = change.get("vector")
    if vector is not None and not isinstance(vector, str) and vector.model is ...:
        change = {"vector": vector.replaced(model=cpu.model)}
    words = {"pairs": calm, "vector": cpu.train(calm), "layer": 3} | change
    with pytest.raises(error) as caught:
        cpu.project(**words)
    assert str(caught.value).startswith(sentence)
