"""logreg against scikit-learn, pca-uncentred against a singular value decomposition.

What steering-vectors computes is written out: it needs torch, which is no dependency.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from ster.errors import DirectionError
from ster.vectors.directions import fit_directions

KINDS = ["random", "separable", "tiny", "rank-deficient", "constant", "tall"]


def sides(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one layer, (num_pairs, 1, width) f32, whose features differ in spread."""
    num_pairs, width = {"tiny": (1, 40), "tall": (90, 12)}.get(kind, (30, 40))
    generator = np.random.default_rng(5)
    shift = 3 if kind == "separable" else 0.2
    drawn = generator.standard_normal((2, num_pairs, width))
    drawn += np.array([shift, -shift])[:, None, None]
    if kind == "rank-deficient":
        drawn[:, :, 20:] = drawn[:, :, :20]
        drawn[:, 15:] = drawn[:, :15]
    drawn *= np.exp(2 * generator.standard_normal(width))
    if kind == "constant":
        drawn[:, :, 7] = 0.1
    positive, negative = drawn.astype(np.float32)[:, :, None, :]
    return positive, negative


def unit(direction):
    return direction / np.linalg.norm(direction)


def by_scikit_learn(positive, negative):
    rows = np.concatenate([positive[:, 0], negative[:, 0]]).astype("f8")
    labels = np.repeat([1, 0], [len(positive), len(negative)])
    scaler = StandardScaler().fit(rows)
    model = LogisticRegression(tol=1e-10, max_iter=100_000)
    model.fit(scaler.transform(rows), labels)
    return unit(np.array(model.coef_[0] / scaler.scale_))


@pytest.mark.parametrize("kind", KINDS)
def test_logreg_is_the_logistic_regression_of_scikit_learn(kind):
    positive, negative = sides(kind)
    found = fit_directions("logreg", positive, negative)[0]
    assert found @ by_scikit_learn(positive, negative) > 1 - 1e-6
    assert found.tobytes() == fit_directions("logreg", positive, negative).tobytes()


def test_logreg_finds_a_difference_that_large_noise_hides_from_the_mean():
    generator = np.random.default_rng(2)
    rows = generator.standard_normal((2, 60, 1, 8)).astype(np.float32)
    rows[:, :, :, 0] *= 1000
    rows[:, :, :, 1] += np.array([3, -3])[:, None, None]
    assert abs(fit_directions("caa", *rows)[0, 1]) < 0.5
    assert fit_directions("logreg", *rows)[0, 1] > 0.9


def test_logreg_of_sides_with_the_same_rows_in_another_order_is_refused():
    positive, _ = sides("random")
    with pytest.raises(DirectionError, match="zero or non-finite direction"):
        fit_directions("logreg", positive, positive[::-1])


@pytest.mark.parametrize("kind", KINDS)
def test_uncentred_pca_is_the_first_right_singular_vector(kind):
    positive, negative = sides(kind)
    differences = (positive - negative)[:, 0].astype("f8")
    first = np.linalg.svd(differences, full_matrices=False)[2][0]
    first *= np.sign(first @ differences.mean(axis=0))
    found = fit_directions("pca-uncentred", positive, negative)[0]
    assert found == pytest.approx(first, abs=1e-6)


def test_of_equally_long_axes_uncentred_pca_takes_the_one_nearest_to_the_mean():
    positive = np.diag([2, 2, 1]).astype(np.float32)[:, None, :]
    found = fit_directions("pca-uncentred", positive, np.zeros_like(positive))[0]
    assert found == pytest.approx(np.array([1, 1, 0]) / np.sqrt(2), abs=1e-6)


def test_of_an_axis_across_the_mean_either_sense_will_do():
    positive = np.array([[0, 1], [9, 0], [-9, 0]], np.float32)[:, None, :]
    found = fit_directions("pca-uncentred", positive, np.zeros_like(positive))[0]
    assert np.abs(found) == pytest.approx([1, 0], abs=1e-6)


def test_caa_is_the_mean_aggregator_and_uncentred_pca_the_pca_of_steering_vectors():
    """Its PCA is that of the differences and their negatives, which has mean zero."""
    positive, negative = sides("random")
    differences = (positive - negative)[:, 0].astype("f8")
    mean = unit(differences.mean(axis=0))
    assert fit_directions("caa", positive, negative)[0] @ mean > 1 - 1e-6
    both = np.concatenate([differences, -differences])
    component = np.linalg.svd(both - both.mean(axis=0), full_matrices=False)[2][0]
    component *= np.sign(component @ mean)
    found = fit_directions("pca-uncentred", positive, negative)[0]
    assert found @ component > 1 - 1e-6
