"""The ways to fit a direction, by hand where that can be done."""

from __future__ import annotations

import numpy as np
import pytest

from ster.errors import DirectionError, UsageError
from ster.vectors.directions import fit_directions
from ster.vectors.methods import ALL_METHODS, parse_method

ALIKE = "training requires the same non-zero number of positive and negative examples"
WIDTH = "activation vectors must have one finite, consistent width"
ZERO = "training produced a zero or non-finite direction"


def rows(*pairs: list[float]) -> np.ndarray:
    """Rows of one layer, one for each pair."""
    return np.array(pairs, np.float32)[:, None, :]


def noise(num_pairs: int, num_layers: int = 2, width: int = 5, seed: int = 3):
    generator = np.random.default_rng(seed)
    sides = generator.standard_normal((2, num_pairs, num_layers, width))
    return (sides + np.array([0.4, -0.4])[:, None, None, None]).astype(np.float32)


def test_caa_is_the_normalised_mean_difference():
    found = fit_directions("caa", rows([3, 0], [5, 4]), rows([0, 0], [2, -4]))
    assert found[0] == pytest.approx(np.array([3, 4]) / 5, abs=1e-7)


def test_pca_finds_where_the_differences_vary_most_not_where_they_lie():
    found = fit_directions("pca", rows([1, 9], [1, -5]), rows([0, 0], [0, 0]))
    assert found[0] == pytest.approx([0, 1], abs=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
def test_pca_points_towards_the_positive_side(sign):
    positive, negative = noise(9)
    found = fit_directions("pca", sign * positive, sign * negative)
    means = sign * (positive - negative).mean(axis=0)
    assert ((found * means).sum(axis=1) > 0).all()


def plain_logistic(positive: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """The same descent written out in f64, one row at a time."""
    weights = np.zeros(positive.shape[1])
    examples = [(x, 1) for x in positive] + [(x, 0) for x in negative]
    for step in range(300):
        gradient = np.zeros_like(weights)
        for x, label in examples:
            gradient += (1 / (1 + np.exp(-(weights @ x))) - label) * x
        gradient /= len(examples)
        weights -= 0.1 / (1 + 0.01 * step) * (gradient + 1e-4 * weights)
    return weights / np.linalg.norm(weights)


def test_logistic_is_the_descent_written_out_in_f64():
    positive, negative = noise(7, num_layers=1)
    expected = plain_logistic(positive[:, 0].astype("f8"), negative[:, 0].astype("f8"))
    found = fit_directions("logistic", positive, negative)
    assert found[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("method", ALL_METHODS)
def test_layers_are_fitted_as_if_each_were_alone(method):
    positive, negative = noise(6, num_layers=3)
    together = fit_directions(method, positive, negative)
    assert together.dtype == np.float32
    assert np.linalg.norm(together, axis=1) == pytest.approx(1, abs=1e-6)
    for layer in range(3):
        one = slice(layer, layer + 1)
        alone = fit_directions(method, positive[:, one], negative[:, one])
        assert alone[0].tobytes() == together[layer].tobytes()


@pytest.mark.parametrize("method", ALL_METHODS)
def test_rows_of_a_strided_view_are_fitted_like_their_copy(method):
    both = np.ascontiguousarray(noise(6).swapaxes(0, 1)).reshape(12, 2, 5)
    views = both[0::2], both[1::2]
    copies = [view.copy() for view in views]
    assert (fit_directions(method, *views) == fit_directions(method, *copies)).all()


@pytest.mark.parametrize("method", ["caa", "logistic", "logreg", "pca-uncentred"])
def test_one_pair_points_from_side_to_side(method):
    found = fit_directions(method, rows([0, 3]), rows([0, -1]))
    assert found[0] == pytest.approx([0, 1], abs=1e-7)


def test_pca_of_one_pair_has_no_variance_and_takes_the_first_axis_towards_positive():
    found = fit_directions("pca", rows([-2, 3]), rows([0, 0]))
    assert found.tolist() == [[-1, 0]]


@pytest.mark.parametrize("method", ["caa", "logistic", "logreg", "pca-uncentred"])
def test_identical_sides_are_refused(method):
    with pytest.raises(DirectionError) as caught:
        fit_directions(method, rows([1, 2], [0.1, 7]), rows([1, 2], [0.1, 7]))
    assert caught.value.sentence == ZERO


def test_pca_of_identical_sides_is_the_first_axis():
    found = fit_directions("pca", rows([1, 2], [3, 4]), rows([1, 2], [3, 4]))
    assert found.tolist() == [[1, 0]]


def test_constant_differences_leave_pca_no_noise_to_find():
    positive, _ = noise(7, num_layers=1)
    shift = np.float32(0.25)
    exact = np.round(positive * 8) / 8
    found = fit_directions("pca", exact + shift, exact)
    assert found[0].tolist() == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("method", ALL_METHODS)
def test_perfectly_separable_sides_give_a_finite_direction(method):
    found = fit_directions(method, rows([900, 1], [901, 0]), rows([-900, 0], [-880, 1]))
    assert np.isfinite(found).all()
    assert found[0, 0] > 0


@pytest.mark.parametrize(
    ("positive", "negative", "sentence"),
    [
        (rows([1, 2]), rows([1, 2], [3, 4]), ALIKE),
        (np.empty((0, 1, 2), "f4"), np.empty((0, 1, 2), "f4"), ALIKE),
        (
            np.empty((2, 1, 0), "f4"),
            np.empty((2, 1, 0), "f4"),
            "activation vectors are empty",
        ),
        (rows([1, 2]), rows([1, 2, 3]), WIDTH),
        (rows([1, np.nan]), rows([1, 2]), WIDTH),
        (rows([1, 2]), rows([np.inf, 2]), WIDTH),
    ],
)
@pytest.mark.parametrize("method", ALL_METHODS)
def test_rows_that_are_no_pairs_are_refused(method, positive, negative, sentence):
    with pytest.raises(DirectionError) as caught:
        fit_directions(method, positive, negative)
    assert caught.value.sentence == sentence


def test_a_direction_that_overflows_is_refused():
    with pytest.raises(DirectionError) as caught:
        fit_directions("pca", rows([3e38, 0], [-3e38, 1]), rows([-3e38, 0], [3e38, 0]))
    assert caught.value.sentence == ZERO


@pytest.mark.parametrize(
    ("word", "method"),
    [
        *((m, m) for m in ALL_METHODS),
        ("mean-difference", "caa"),
        ("probe", "logistic"),
        ("pca-uncentered", "pca-uncentred"),
    ],
)
def test_a_method_has_other_names(word, method):
    assert parse_method(word) == method


@pytest.mark.parametrize("word", ["", "CAA", "lda", 'a"b'])
def test_an_unknown_method_is_refused(word):
    shown = word.replace('"', '\\"')
    with pytest.raises(UsageError) as caught:
        parse_method(word)
    assert caught.value.sentence == (
        f'unknown training method "{shown}"; expected caa, pca, logistic, logreg, or '
        "pca-uncentred"
    )
