"""Sampling, with probabilities worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ster.decoder.sampling import draw, keep_top, probabilities
from ster.errors import UsageError
from ster.runs.sampling import Sampling, make_sampler


def logits(*mass: float) -> np.ndarray:
    """Return logits whose softmax at temperature 1 has this mass."""
    return np.log(np.array(mass, np.float32))


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_no_temperature_takes_the_likeliest_and_the_first_of_equals(temperature):
    sample = make_sampler(Sampling(temperature=temperature))
    assert sample(logits(0.1, 0.4, 0.4, 0.1)) == 1


def test_temperature_divides_the_logits():
    assert probabilities(logits(0.2, 0.8), 1.0) == pytest.approx([0.2, 0.8])
    # At one half, masses are squared: 1 to 16.
    assert probabilities(logits(0.2, 0.8), 0.5) == pytest.approx([1 / 17, 16 / 17])


def test_huge_logits_do_not_overflow():
    assert probabilities(np.array([1e38, -1e38], np.float32), 1e-3) == pytest.approx(
        [1, 0]
    )


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [
        (0.4, [1]),
        (0.5, [1]),
        (0.51, [1, 3]),
        (0.8, [1, 3]),
        (0.95, [0, 1, 2, 3]),
        (0.9, [0, 1, 3]),
        (1.0, [0, 1, 2, 3]),
    ],
)
def test_top_p_keeps_the_fewest_that_reach_it_with_the_crossing_one(top_p, kept):
    mass = np.array([0.125, 0.5, 0.0625, 0.3125])
    left = keep_top(mass, top_p)
    assert sorted(np.flatnonzero(left)) == sorted(kept)
    assert left.sum() == pytest.approx(1)
    assert left[1] == pytest.approx(0.5 / mass[kept].sum())


@pytest.mark.parametrize(
    ("at", "token"), [(0.0, 1), (0.249, 1), (0.25, 3), (0.999999, 3)]
)
def test_a_point_falls_on_the_token_that_covers_it(at, token):
    assert draw(np.array([0.0, 0.25, 0.0, 0.75, 0.0]), at) == token


def test_rounding_never_draws_a_token_without_mass():
    mass = np.array([0.1] * 10 + [0.0])
    assert draw(mass, np.nextafter(1.0, 0.0)) == 9


def test_draws_follow_the_probabilities():
    sample = make_sampler(Sampling(temperature=1.0, seed=7))
    drawn = [sample(logits(0.5, 0.3, 0.2)) for _ in range(4000)]
    shares = np.bincount(drawn, minlength=3) / 4000
    # Five standard deviations of a share are 0.04: a false alarm in two million.
    assert shares == pytest.approx([0.5, 0.3, 0.2], abs=0.04)


def test_the_same_seed_draws_the_same_and_another_does_not():
    def draws(seed: int) -> list[int]:
        sample = make_sampler(Sampling(temperature=1.0, top_p=0.9, seed=seed))
        return [sample(logits(*[0.1] * 10)) for _ in range(30)]

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)


@pytest.mark.parametrize("temperature", [5e-324, 1e-310, 1e-300])
def test_the_smallest_temperatures_take_the_likeliest(temperature):
    row = np.array([3e38, -3e38, 1.0, 3.1e38, 2.0], np.float32)
    assert probabilities(row, temperature).tolist() == [0, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"temperature": float("nan")}, "temperature must be finite, not nan"),
        ({"temperature": float("inf")}, "temperature must be finite, not inf"),
        ({"top_p": 0.0}, "top-p must be above zero and at most one, not 0.0"),
        ({"top_p": 1.5}, "top-p must be above zero and at most one, not 1.5"),
        ({"top_p": float("nan")}, "top-p must be above zero and at most one, not nan"),
        ({"seed": -1}, "seed must be at least zero, not -1"),
    ],
)
def test_what_no_token_can_be_drawn_with_is_refused(changes, sentence):
    with pytest.raises(UsageError) as caught:
        Sampling(**changes)
    assert caught.value.sentence == sentence
