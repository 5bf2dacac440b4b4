"""Accuracies, margins and how sure they are, computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ster.errors import DirectionError
from ster.vectors.metrics import (
    RANDOM_DIRECTIONS,
    accuracy,
    accuracy_interval,
    effect_size,
    mean_norms,
    random_accuracies,
    score_rows,
)


def test_a_score_is_each_rows_product_with_its_layers_direction():
    rows = np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], np.float32)
    directions = np.array([[1, 0], [0, -2]], np.float32)
    assert score_rows(rows, directions).tolist() == [[1, -8], [5, -16]]


def test_a_small_difference_of_large_scores_is_not_lost():
    rows = np.full((2, 1, 2), 16384, np.float32)
    rows[0, 0, 1] += 1 / 512
    direction = np.array([[0.7, 0.7]], np.float32)
    scores = score_rows(rows, direction)
    assert scores[0, 0] - scores[1, 0] == pytest.approx(0.7 / 512, rel=1e-6)


def test_another_width_is_refused():
    with pytest.raises(DirectionError) as caught:
        score_rows(np.ones((1, 1, 3), "f4"), np.ones((1, 4), "f4"))
    assert caught.value.sentence == (
        "direction width 4 does not match activation width 3"
    )


def test_a_margin_of_zero_is_not_correct():
    margins = np.array([[1, 0], [-1, 0], [2, 1e-30], [3, -1]])
    assert accuracy(margins).tolist() == [0.75, 0.25]


@pytest.mark.parametrize(
    ("positive", "negative", "size"),
    [
        ([3, 5], [0, 2], 3.0),  # every value lies 1 from its mean
        ([0, 2], [3, 5], -3.0),
        ([2, 2, 8], [0, 0, 0], 4 / 2),  # squares 4 4 16 0 0 0, mean 4
        ([1], [0], None),  # one pair has no spread
        ([2, 2], [1, 1], None),
        ([1, 1], [1, 1], None),  # 0 / 0
        ([1, 3], [3, 1], None),  # zero is no normal number
        ([1, 1 + 1e-39], [0, 0], None),
    ],
)
def test_effect_size(positive, negative, size):
    found = effect_size(np.array(positive, "f8"), np.array(negative, "f8"))
    assert found == (size if size is None else pytest.approx(size))


@pytest.mark.parametrize(
    ("correct", "num_pairs", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I, method 3
        (1, 1, 0.2065, 1.0),
    ],
)
def test_wilsons_interval(correct, num_pairs, low, high):
    found = accuracy_interval(correct / num_pairs, num_pairs)
    assert found == pytest.approx((low, high), abs=5e-5)
    assert 0 <= found[0] <= found[1] <= 1


def test_random_directions_are_the_same_at_every_call_and_mostly_guess():
    generator = np.random.default_rng(1)
    positive, negative = generator.standard_normal((2, 40, 3, 16)).astype("f4")
    first = random_accuracies(positive, negative)
    assert first.shape == (RANDOM_DIRECTIONS, 3)
    assert (first == random_accuracies(positive, negative)).all()
    assert first.mean() == pytest.approx(0.5, abs=0.05)
    assert (first + random_accuracies(negative, positive) == 1).all()


def test_norms_are_averaged_by_layer():
    rows = np.array([[[3, 4], [0, 1]], [[0, 1], [0, 0]]], np.float32)
    assert mean_norms(rows).tolist() == [3, 0.5]
