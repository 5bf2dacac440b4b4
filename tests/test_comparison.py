"""Comparing vectors: small ones whose numbers are known, and those of the toy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ster
from ster import PairSet, SteeringVector
from ster.errors import DirectionError, LayerError, UsageError
from ster.vectors.comparable import label_vectors
from ster.vectors.comparison import compare_vectors
from ster.vectors.grouping import average_linkage, mean_silhouette
from tests import made

DIAGONAL = np.sqrt(0.5)
# Two near each other and two near each other, the second two a little less.
DISTANCES = np.array(
    [[0, 1, 4, 6], [1, 0, 5, 7], [4, 5, 0, 2], [6, 7, 2, 0]], dtype="f8"
)


def vector(trait: str, *directions: list[float], **parts: Any) -> SteeringVector:
    array = np.array(directions, np.float32)
    layers = parts.pop("layers", tuple(range(len(array))))
    words = {"model": "toy", "trait_name": trait, "method": "caa", "array": array}
    return SteeringVector(layers=layers, **(words | parts))


EAST = vector("east", [2, 0, 0], [1, 0, 0])
NORTH_EAST = vector("north-east", [1, 1, 0], [1, 0, 0])
WEST = vector("west", [-1, 0, 0], [-3, 0, 0])
UP = vector("up", [0, 0, 1], [0, 3, 4])


def test_cosines_are_those_of_each_layer_and_their_mean():
    found = EAST.compare(NORTH_EAST, WEST, UP, clusters=2)
    assert found.layers == (0, 1)
    assert found.labels == ("east", "north-east", "west", "up")
    first = [
        [1, DIAGONAL, -1, 0],
        [DIAGONAL, 1, -DIAGONAL, 0],
        [-1, -DIAGONAL, 1, 0],
        [0, 0, 0, 1],
    ]
    second = [[1, 1, -1, 0], [1, 1, -1, 0], [-1, -1, 1, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(found.cosines, [first, second], atol=1e-12)
    mean = (np.array(first) + second) / 2
    np.testing.assert_allclose(found.similarity, mean, atol=1e-12)


def test_a_direction_and_its_opposite_are_at_no_distance():
    found = EAST.compare(NORTH_EAST, WEST, UP, clusters=2)
    # Of unit directions at 45 degrees, at 90, and 0: 2 sin(angle / 2).
    diagonal = 2 * np.sin(np.pi / 8) / 2
    expected = [
        [0, diagonal, 0, np.sqrt(2)],
        [diagonal, 0, diagonal, np.sqrt(2)],
        [0, diagonal, 0, np.sqrt(2)],
        [np.sqrt(2), np.sqrt(2), np.sqrt(2), 0],
    ]
    np.testing.assert_allclose(found.distance, expected, atol=1e-12)
    assert found.clusters == (0, 0, 0, 1)


def test_the_most_and_the_least_alike_are_named():
    found = EAST.compare(NORTH_EAST, WEST, UP, clusters=2)
    alike, apart = found.most_similar, found.most_different
    assert (alike.a, alike.b) == ("east", "north-east")
    assert alike.cosine == pytest.approx((1 + DIAGONAL) / 2)
    assert (apart.a, apart.b, apart.cosine) == ("east", "west", -1)


def test_uniqueness_is_the_share_outside_the_span_of_the_others():
    # Of (1, 1, 0) at length 2: half its square is along the other.
    two = vector("a", [2, 0, 0]).compare(vector("b", [1, 1, 0]), clusters=1)
    assert two.uniqueness == pytest.approx((DIAGONAL, DIAGONAL))
    # Each of three in a plane is a sum of the others, though none is alike.
    plane = vector("a", [1, 0, 0]).compare(
        vector("b", [0, 1, 0]), vector("c", [1, 2, 0]), clusters=1
    )
    assert plane.uniqueness == pytest.approx((0, 0, 0), abs=1e-7)
    # Layers count by the squares of their lengths: 9 of 25 is outside.
    long = vector("a", [3, 0, 0], [0, 4, 0])
    other = vector("b", [0, 1, 0], [0, 1, 0])
    assert long.compare(other, clusters=1).uniqueness[0] == pytest.approx(0.6)


def test_a_scaled_copy_in_f32_spans_nothing_of_its_own():
    array = np.random.default_rng(3).standard_normal((3, 40)).astype(np.float32)
    one, other = vector("a", *array[:2].tolist()), vector("b", *array[1:].tolist())
    alone = one.compare(other, clusters=1)
    beside = one.compare(other, other * (1 / 3), clusters=1)
    assert beside.uniqueness[0] == pytest.approx(alone.uniqueness[0], abs=1e-7)
    assert beside.uniqueness[1] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("number", "groups"),
    [(4, (0, 1, 2, 3)), (3, (0, 0, 1, 2)), (2, (0, 0, 1, 1)), (1, (0, 0, 0, 0))],
)
def test_the_nearest_groups_are_joined(number, groups):
    assert average_linkage(DISTANCES, number) == groups


def test_groups_are_as_near_as_their_members_are_on_average():
    # 2 is 3 from 0 and 9 from 1, so 6 from both; 3 is 5 from 2: that is nearer.
    # By the nearest members 2 would join 0 and 1.
    distances = np.array(
        [[0, 1, 3, 8], [1, 0, 9, 8], [3, 9, 0, 5], [8, 8, 5, 0]], dtype="f8"
    )
    assert average_linkage(distances, 2) == (0, 0, 1, 1)


def test_groups_are_numbered_by_their_first_members():
    distances = np.array([[0, 9, 9, 1], [9, 0, 2, 9], [9, 2, 0, 9], [1, 9, 9, 0]], "f8")
    assert average_linkage(distances, 2) == (0, 1, 1, 0)


def test_the_silhouette_is_that_of_items_with_company():
    # Item by item: 1 - within / beyond, as all are nearer to their own.
    expected = np.mean([1 - 1 / 5, 1 - 1 / 6, 1 - 2 / 4.5, 1 - 2 / 6.5])
    assert mean_silhouette(DISTANCES, (0, 0, 1, 1)) == pytest.approx(expected)
    # The last two are alone, and do not count.
    expected = np.mean([1 - 1 / 4, 1 - 1 / 5])
    assert mean_silhouette(DISTANCES, (0, 0, 1, 2)) == pytest.approx(expected)
    # Item 0 is nearer to the other group.
    expected = np.mean([1 / 4 - 1, 1 - 4 / 5])
    assert mean_silhouette(DISTANCES[:3, :3], (0, 1, 0)) == pytest.approx(expected)


@pytest.mark.parametrize("groups", [(0, 0, 0, 0), (0, 1, 2, 3)])
def test_one_group_or_many_of_one_have_no_silhouette(groups):
    assert mean_silhouette(DISTANCES, groups) is None


def test_layers_are_those_that_all_have_unless_asked_for():
    one = made.vector((1, 2, 5), array=np.ones((3, 6), "f4"))
    other = made.vector((0, 2, 5), array=np.ones((3, 6), "f4"))
    assert one.compare(other, clusters=1).layers == (2, 5)
    assert one.compare(other, clusters=1, layers=5).layers == (5,)
    assert one.compare(other, clusters=1, layers="5, 2..3").layers == (2, 5)


def test_labels_are_traits_and_say_more_where_they_repeat():
    caa, pca = made.vector(), made.vector(method="pca")
    other = made.vector(trait_name="loud")
    assert label_vectors([caa, other]) == ("calm", "loud")
    assert label_vectors([caa, pca, other, -caa, caa]) == (
        "calm (caa) 1",
        "calm (pca)",
        "loud",
        "-1 × calm (caa)",
        "calm (caa) 2",
    )
    named = [caa.replaced(source=name) for name in ("a.json", "b.json")]
    assert label_vectors(named) == ("calm (caa) a.json", "calm (caa) b.json")


def test_the_document_has_the_keys_of_the_contract():
    found = EAST.compare(UP, clusters=2)
    assert found.document == {
        "clusters": [0, 1],
        "distance": [[0, pytest.approx(2**0.5)], [pytest.approx(2**0.5), 0]],
        "labels": ["east", "up"],
        "layers": [0, 1],
        "most_different": {"a": "east", "b": "up", "cosine": 0},
        "most_similar": {"a": "east", "b": "up", "cosine": 0},
        "per_layer": [
            {"layer": layer, "similarity": [[1, 0], [0, 1]]} for layer in (0, 1)
        ],
        "silhouette": None,
        "similarity": [[1, 0], [0, 1]],
        "uniqueness": [{"label": "east", "score": 1}, {"label": "up", "score": 1}],
    }


def test_vectors_of_the_toy_are_as_numpy_says(tmp_path: Path, published):
    ster.write_toy_checkpoint(tmp_path / "toy")
    runtime = ster.load(tmp_path / "toy")
    halves = [
        PairSet.of(published["pairs"][part], trait_name=name)
        for name, part in (("first", slice(4)), ("last", slice(4, 8)))
    ]
    first, last = (runtime.train(half) for half in halves)
    found = first.compare(last, clusters=1)
    cosines, distances = [], []
    for layer in range(4):
        rows = [runtime.activations(half, layers=layer).array[:, 0] for half in halves]
        a, b = (np.mean(each[0::2].astype("f8") - each[1::2], axis=0) for each in rows)
        a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
        cosines.append(a @ b)
        distances.append(min(np.linalg.norm(a - b), np.linalg.norm(a + b)))
    np.testing.assert_allclose(found.cosines[:, 0, 1], cosines, atol=1e-6)
    assert found.similarity[0, 1] == pytest.approx(np.mean(cosines), abs=1e-6)
    assert found.distance[0, 1] == pytest.approx(np.mean(distances), abs=1e-6)
    sines = np.sqrt(np.mean(1 - np.square(cosines)))
    assert found.uniqueness == pytest.approx([sines] * 2, abs=1e-6)


def test_a_comparison_shows_itself():
    found = EAST.compare(NORTH_EAST, WEST, clusters=2)
    assert repr(found) == (
        "Comparison(3 vectors, layers 0, 1, 2 clusters, most similar: 'east' and "
        "'north-east', cosine 0.8536)"
    )
    at_one = EAST.compare(WEST, clusters=1, layers=1)
    assert repr(at_one).startswith("Comparison(2 vectors, layer 1, 1 cluster, ")
    # Whoever asks for no groups gets cosines.
    assert EAST.compare(WEST).clusters == (0, 0)
    page = found._repr_html_()
    for words in (
        "<strong>Comparison of 3 vectors</strong>",
        "unique share",
        "-0.8536",
    ):
        assert words in page


def test_a_control_vector_of_another_program_names_no_model():
    foreign = made.vector(method="gguf", model="llama", trait_name="b")
    found = foreign.compare(made.vector(), clusters=1)
    assert (found.model, found.labels) == ("toy", ("b", "calm"))


@pytest.mark.parametrize(
    ("others", "how", "error", "sentence"),
    [
        ([], {}, DirectionError, "a comparison needs at least two vectors, not 1"),
        (
            [made.vector()],
            {"clusters": 3},
            DirectionError,
            "2 vectors make no 3 clusters: clusters may be 1 to 2",
        ),
        (
            [made.vector()],
            {"clusters": 0},
            UsageError,
            "clusters must be at least 1, not 0",
        ),
        (
            [made.vector()],
            {"clusters": "2"},
            UsageError,
            'clusters must be a whole number, not "2"',
        ),
        (
            [made.vector(model="other", trait_name="b")],
            {},
            DirectionError,
            "vectors of different models have no directions in common: "
            '"calm" is of model "toy", "b" of "other"',
        ),
        (
            [made.vector(array=np.ones((2, 5), "f4"), trait_name="b")],
            {},
            DirectionError,
            "vectors of different hidden sizes have no directions in common: that of "
            '"calm" is 6, that of "b" 5',
        ),
        (
            [made.vector((0, 2), trait_name="b")],
            {},
            DirectionError,
            'the vectors have no layer in common: "calm" has layers 1, 3: '
            '"b" has layers 0, 2: '
            "vector train --layers, in Python layers=, fits at the same layers",
        ),
        (
            # Two of them have one.
            [made.vector((0, 2), trait_name="b"), made.vector((2, 3), trait_name="c")],
            {},
            DirectionError,
            'no layer is common to all 3 vectors: "calm" has layers 1, 3: "b" has '
            'layers 0, 2: "c" has layers 2, 3: vector train --layers, in Python '
            "layers=, fits at the same layers",
        ),
        (
            [made.vector((1, 2), trait_name="b")],
            {"layers": [1, 3]},
            LayerError,
            '"b" has no layer 3, only layers 1, 2',
        ),
        ([made.vector()], {"layers": "1,9"}, LayerError, "no vector has layer 9"),
        ([made.vector()], {"layers": "x"}, LayerError, 'invalid layer "x"'),
        (
            [made.vector(array=np.array([[1] * 6, [0] * 6], "f4"), trait_name="b")],
            {},
            DirectionError,
            'the direction of "b" at layer 3 is all zeros',
        ),
        (["calm.json"], {}, UsageError, "other must be a SteeringVector, not str"),
    ],
)
def test_what_cannot_be_compared_is_refused(others, how, error, sentence):
    with pytest.raises(error) as caught:
        made.vector().compare(*others, **({"clusters": 1} | how))
    assert str(caught.value).startswith(sentence)


def test_pure_comparison_takes_a_list():
    assert compare_vectors([EAST, UP], 2).clusters == (0, 1)
