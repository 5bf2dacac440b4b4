"""Vectors compared with each other and with rows, and vectors of given directions."""

from __future__ import annotations

import operator
from dataclasses import replace

import numpy as np
import pytest

from ster import SteeringVector
from ster.errors import DirectionError, DocumentError, LayerError, UsageError
from ster.vectors.metrics import margin_interval, random_margins, score_rows
from tests import made


def test_rows_times_a_vector_are_scores_of_the_layers_of_the_vector():
    acts, vector = made.activations(layers=(0, 1, 3)), made.vector()
    scores = acts @ vector
    assert scores.dtype == np.float64
    assert scores.shape == (4, 2)
    expected = score_rows(acts.array[:, 1:], vector.array)
    np.testing.assert_array_equal(scores, expected)
    direct = np.einsum("rlh,lh->rl", acts.array[:, 1:].astype("f8"), vector.array)
    np.testing.assert_allclose(scores, direct, rtol=1e-12)


def test_a_projection_does_not_depend_on_the_length_of_the_vector():
    acts, vector = made.activations(), made.vector()
    projected = vector.project(acts)
    np.testing.assert_allclose(projected, (acts @ vector) / vector.norms())
    np.testing.assert_allclose((vector * 3).project(acts), projected, rtol=1e-6)
    np.testing.assert_allclose((-vector).project(acts), -projected)
    np.testing.assert_allclose(acts @ (vector * 3), 3 * (acts @ vector), rtol=1e-6)


def test_texts_are_read_at_the_layers_of_the_vector():
    asked = []

    class Reader:
        def activations(self, prompts, layers):
            asked.append((prompts, layers))
            return made.activations(layers=layers)

    vector = made.vector()
    projected = vector.project(["some", "texts"], Reader())
    assert asked == [(["some", "texts"], (1, 3))]
    np.testing.assert_array_equal(projected, vector.project(made.activations()))
    with pytest.raises(UsageError, match=r"texts need a runtime that reads them: "):
        vector.project(["some"])


def test_rows_that_do_not_fit_the_vector_are_refused():
    vector = made.vector((1, 3, 5))
    with pytest.raises(LayerError, match="layer 5 of the vector was not read") as lost:
        made.activations() @ vector
    assert lost.value.layer == 5
    wide = replace(made.vector(), array=np.ones((2, 7), np.float32))
    with pytest.raises(DirectionError, match="direction width 7 does not match"):
        made.activations() @ wide
    with pytest.raises(DocumentError, match='of model "toy" have no place along'):
        made.activations() @ replace(made.vector(), model="other")
    nowhere = replace(made.vector(), array=np.zeros((2, 6), np.float32))
    with pytest.raises(DirectionError, match="layer 1 is all zeros"):
        nowhere.project(made.activations())
    with pytest.raises(TypeError, match="unsupported operand"):
        operator.matmul(np.ones((2, 6)), made.vector())


def test_two_spellings_of_a_directory_are_one_model(tmp_path):
    acts = made.activations(model=str(tmp_path))
    vector = made.vector(model=f"{tmp_path}/.")
    assert (acts @ vector).shape == (4, 2)


def test_cosines_are_of_the_layers_that_both_have():
    one, other = made.vector((1, 3)), made.vector((3, 4), model="another")
    a, b = one.direction(3).astype("f8"), other.direction(3).astype("f8")
    expected = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    cosines = one.cosine(other)
    assert [*cosines] == [3]
    assert cosines[3] == pytest.approx(expected, rel=1e-12)
    assert one.cosine(one * -2) == {1: pytest.approx(-1), 3: pytest.approx(-1)}


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (made.vector((7,)), "the vectors have no layer in common: one has layers 1, 3"),
        (
            made.vector(array=np.ones((2, 5), np.float32)),
            "cosine similarity requires equal non-empty vectors",
        ),
        (
            made.vector(array=np.zeros((2, 6), np.float32)),
            "cosine similarity is undefined for a zero vector",
        ),
    ],
)
def test_vectors_without_a_cosine_are_refused(other, sentence):
    with pytest.raises(DirectionError, match=sentence):
        made.vector().cosine(other)


def test_only_a_vector_has_a_cosine():
    with pytest.raises(UsageError, match="other must be a SteeringVector, not list"):
        made.vector().cosine([1.0])  # type: ignore[arg-type]


def test_norms_are_those_of_the_directions():
    vector = made.vector()
    np.testing.assert_allclose(vector.norms(), np.linalg.norm(vector.array, axis=1))


@pytest.mark.parametrize(
    ("array", "layers"),
    [
        ([3.0, 4.0], 2),
        ([[3, 4]], [2]),
        (np.array([[3.0, 4.0]]), np.int64(2)),
        (np.array([3, 4], np.float32), (2,)),
    ],
)
def test_a_vector_of_anything_like_an_array(array, layers):
    vector = SteeringVector.of(array, layers=layers, model="toy", trait_name="calm")
    assert vector.layers == (2,)
    assert vector.array.dtype == np.float32
    assert vector.array.tolist() == [[3, 4]]
    assert (vector.method, vector.trait_name) == ("given", "calm")


def test_a_vector_of_given_directions_takes_any_order_length_and_origin():
    vector = SteeringVector.of(
        [[0, 2], [3, 4]],
        layers=[5, 1],
        model="toy",
        unit=True,
        method="probe",
        precision="bf16",
        metadata={"C": "0.1"},
    )
    assert vector.layers == (1, 5)
    expected = np.array([[0.6, 0.8], [0, 1]])
    np.testing.assert_allclose(vector.array, expected, rtol=1e-6)
    assert (vector.precision, vector.metadata) == ("bf16", {"C": "0.1"})


def test_a_given_vector_is_saved_and_read_back(tmp_path):
    vector = SteeringVector.of([0.1, 0.2], layers=0, model="toy")
    vector.save(tmp_path / "v.json")
    again = SteeringVector.load(tmp_path / "v.json")
    np.testing.assert_array_equal(again.array, vector.array)
    assert again.method == "given"


@pytest.mark.parametrize(
    ("array", "layers", "error", "sentence"),
    [
        (
            [[1.0, 2.0]],
            [1, 2],
            DocumentError,
            r"shape is \(1, 2\), the layers are 1, 2",
        ),
        (np.ones((1, 2, 3)), [1], DocumentError, "one for each layer"),
        ([[1.0], [2.0, 3.0]], [1, 2], DocumentError, "directions must be numbers"),
        (["a"], [1], DocumentError, "directions must be numbers, not <U1"),
        ([1j], [1], DocumentError, "directions must be numbers, not complex128"),
        ([], [], DocumentError, "one for each layer"),
        ([1e300], [1], DocumentError, "holds a value that is not finite"),
        ([np.nan], [1], DocumentError, "holds a value that is not finite"),
        ([[1.0], [2.0]], [1, 1], DocumentError, "layers of a steering vector must asc"),
        ([1.0], [-1], LayerError, 'invalid layer "-1"'),
        ([1.0], [True], LayerError, 'invalid layer "True"'),
        ([1.0], "1", LayerError, 'invalid layer "1"'),
    ],
)
def test_what_is_no_direction_is_refused(array, layers, error, sentence):
    with pytest.raises(error, match=sentence):
        SteeringVector.of(array, layers=layers, model="toy")


def test_a_direction_of_no_length_has_no_unit():
    with pytest.raises(DirectionError, match="no length cannot be scaled"):
        SteeringVector.of([0.0, 0.0], layers=0, model="toy", unit=True)


@pytest.mark.parametrize(
    ("freedom", "quantile"),  # tables of Student's distribution
    [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (30, 2.042), (1000, 1.962)],
)
def test_the_interval_of_a_margin_is_students(freedom, quantile):
    margins = np.random.default_rng(0).standard_normal(freedom + 1)
    interval = margin_interval(margins)
    assert interval is not None
    lower, upper = interval
    half = quantile * margins.std(ddof=1) / np.sqrt(freedom + 1)
    assert (lower + upper) / 2 == pytest.approx(margins.mean())
    assert (upper - lower) / 2 == pytest.approx(half, rel=0.01)
    assert margin_interval(margins[:1]) is None


def test_random_margins_bound_19_of_20_random_directions():
    generator = np.random.default_rng(0)
    positive, negative = generator.standard_normal((2, 8, 1, 256)).astype("f4")
    (bound,) = random_margins(positive, negative)
    directions = generator.standard_normal((20000, 256))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    margins = (positive - negative).mean(axis=0)[0] @ directions.T
    assert np.mean(np.abs(margins) < bound) == pytest.approx(0.95, abs=0.01)
