"""How many pairs a direction needs: small rows, and the toy's published numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ster
from ster import PairSet
from ster.errors import DirectionError, LayerError, UsageError
from ster.vectors.learning_curves import check_sizes, measure_sizes
from ster.vectors.selection import PairRows
from tests import made
from tests.light import Notes


def rows(*differences: list[float]) -> PairRows:
    """Make pairs of one layer that differ by these, (num_pairs, 1, hidden_size)."""
    array = np.array(differences, np.float32)[:, None]
    return PairRows(positive=array, negative=np.zeros_like(array))


# The first pair points along the first axis, all four together along the second.
FITTED = rows([1, 0], [-1, 2], [-1, 2], [1, 2])
HELD = rows([1, 1], [-1, 1], [-1, 2], [2, -1])


def test_each_size_is_fitted_on_the_first_pairs_and_measured_on_the_held_ones():
    points = measure_sizes("caa", (7,), (4, 1, 2), FITTED, HELD)
    assert [(each.layer, each.size) for each in points] == [(7, 4), (7, 1), (7, 2)]
    # caa: the mean difference, which is (0, 1.5), (1, 0) and (0, 1).
    assert [each.accuracy for each in points] == [0.75, 0.5, 0.75]
    margins = [each.score.margin for each in points]
    assert margins == pytest.approx([3 / 4, 1 / 4, 3 / 4])


def test_an_effect_size_is_that_of_held_out_scores():
    (point,) = measure_sizes("caa", (7,), (1,), FITTED, HELD)
    scores = np.array([1, -1, -1, 2])
    spread = np.sqrt(np.sum((scores - scores.mean()) ** 2) / 8)  # the others are zeros
    assert point.score.effect_size == pytest.approx(scores.mean() / spread)


def test_the_smallest_of_the_best_sizes_is_enough():
    found = made.learning_curve()
    enough = [(e.layer, e.best_accuracy, e.smallest_size) for e in found.enough]
    assert enough == [(0, 0.75, 2), (1, 1.0, 2)]
    assert found.best.layer == 1
    assert (found.layers, found.sizes) == ((0, 1), (2, 4, 8))
    assert [each.size for each in found.at_layer(1)] == [2, 4, 8]
    assert found.most_accurate(1) == [1]


def test_of_equal_layers_the_best_is_that_which_is_so_at_more_sizes():
    found = made.learning_curve()
    first = replace(found.points[0], score=replace(found.points[0].score, accuracy=1.0))
    assert replace(found, points=(first, *found.points[1:])).best.layer == 0


def test_the_document_has_the_keys_of_the_contract():
    document = made.learning_curve().document
    points = document.pop("points")
    assert document == {
        "chat_template": "absent",
        "enough": [
            {"best_accuracy": 0.75, "layer": 0, "smallest_size": 2},
            {"best_accuracy": 1.0, "layer": 1, "smallest_size": 2},
        ],
        "holdout": {"fit_pairs": 8, "fraction": 0.2, "holdout_pairs": 4},
        "method": "caa",
        "trait_name": "calm",
    }
    assert isinstance(points, list)
    assert points[1] == {
        "holdout_accuracy": 0.75,
        "holdout_effect_size": None,
        "holdout_margin": 0.5,
        "layer": 0,
        "size": 2,
    }
    assert [each["size"] for each in points] == [8, 2, 4, 8, 2, 4]


def test_a_curve_shows_itself():
    assert repr(made.learning_curve()) == (
        "LearningCurve('calm', caa, 3 sizes, on 4 held-out pairs, best: layer 1, "
        "accuracy 1 from 2 pairs)"
    )
    page = made.learning_curve()._repr_html_()
    for words in ("Learning curve of &#x27;calm&#x27; (caa)", "8 pairs", "enough"):
        assert words in page


@pytest.mark.parametrize("method", ["caa", "pca", "logistic"])
def test_all_pairs_but_the_held_ones_give_the_published_numbers(
    toy, device, published, calm, method
):
    runtime = ster.load(toy, device=device)
    found = runtime.curve(calm, sizes=[6], method=method, holdout=0.25)
    near = 1e-5 if device == "cpu" else 1e-4
    for each in found.points:
        table = published["holdout_6_fit_2_held"][method]
        accuracy, margin = table[str(each.layer)]
        assert each.accuracy == accuracy
        assert each.score.margin == pytest.approx(margin, abs=near)


def test_fewer_pairs_are_as_numpy_says(cpu, calm):
    found = cpu.curve(calm, sizes=[2, 5, 1], layers=[1, 3], holdout=0.25)
    assert [(each.layer, each.size) for each in found.points] == [
        *((1, 2), (1, 5), (1, 1)),
        *((3, 2), (3, 5), (3, 1)),
    ]
    array = cpu.activations(calm, [1, 3]).array.astype("f8")
    for each in found.points:
        column = array[:, [1, 3].index(each.layer)]
        differences = column[0::2] - column[1::2]
        direction = differences[: each.size].mean(axis=0)
        margins = differences[6:] @ direction / np.linalg.norm(direction)
        assert each.accuracy == np.mean(margins > 0)
        assert each.score.margin == pytest.approx(margins.mean(), abs=1e-5)


def test_other_tokens_are_as_numpy_says(cpu, calm):
    found = cpu.curve(calm, sizes=[3], layers=2, holdout=0.25, tokens="mean")
    rows = cpu.activations(calm, 2, tokens="mean").layer(2).astype("f8")
    differences = rows[0::2] - rows[1::2]
    direction = differences[:3].mean(axis=0)
    margins = differences[6:] @ direction / np.linalg.norm(direction)
    assert found.points[0].score.margin == pytest.approx(margins.mean(), abs=1e-5)


class Listener(Notes):
    """Hears progress and forgets it."""

    def progress(self, progress: object) -> None:
        pass


@pytest.mark.parametrize(
    ("holdout", "said"),
    [
        (0.25, ["fitting caa on 2 numbers of pairs and measuring each on 2 held-out"]),
        (0.1, ["fitting caa on 2 numbers", "one held-out pair makes every accuracy"]),
    ],
)
def test_it_says_what_it_fits_and_how_little_one_pair_tells(toy, calm, holdout, said):
    listener = Listener()
    runtime = ster.load(toy, reporter=listener)
    runtime.curve(calm, sizes=[1, 2], layers=0, holdout=holdout)
    for sentence, beginning in zip(listener.notes[-len(said) :], said, strict=True):
        assert sentence.startswith(beginning)
    assert len([n for n in listener.notes if n.startswith("one held")]) == len(said) - 1


def test_a_size_that_is_given_twice_is_measured_once(cpu, calm):
    assert check_sizes([2, 1, 2]) == (2, 1)
    found = cpu.curve(calm, sizes=[2, 1, 2], layers=0)
    assert [each.size for each in found.points] == [2, 1]


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        (
            {"sizes": [2, 7]},
            DirectionError,
            "size 7 is more than the 6 pairs that may be fitted on: 2 of 8 pairs are "
            "held out",
        ),
        ({"sizes": []}, UsageError, "there is no size to fit on"),
        ({"sizes": [0, 1]}, UsageError, "a size must be at least 1 pair, not 0"),
        ({"sizes": [1.5]}, UsageError, "a size must be a whole number, not 1.5"),
        ({"sizes": "1,2"}, UsageError, "sizes must be whole numbers, such as"),
        ({"sizes": 3}, UsageError, "sizes must be whole numbers, such as"),
        ({"holdout": 1}, DirectionError, "the held-out fraction must be above zero"),
        ({"holdout": "x"}, UsageError, 'holdout must be a number, not "x"'),
        (
            {"pairs": PairSet.of([("the sea", "a storm")])},
            DirectionError,
            "a held-out fraction of 0.25 over 1 contrastive pairs leaves 1 pairs to "
            "fit and 0",
        ),
        ({"method": "x"}, UsageError, 'unknown training method "x"'),
        ({"layers": [4]}, LayerError, "layer 4 is outside the model's 0..3 range"),
        ({"pairs": []}, UsageError, "pairs must be a PairSet, not list"),
        (
            {"pairs": PairSet.of([("the sea", "the sea"), *[("a", "b")] * 7])},
            DirectionError,
            "training produced a zero or non-finite direction: both sides are alike at "
            "a layer, or some pairs undo others: each pair has to differ in the trait, "
            "the same way round: it was fitted on the first 1 pair",
        ),
    ],
)
def test_what_has_no_curve_is_refused(cpu, calm, change, error, sentence):
    words = {"pairs": calm, "sizes": [1, 2], "holdout": 0.25} | change
    with pytest.raises(error) as caught:
        cpu.curve(**words)
    assert str(caught.value).startswith(sentence)
