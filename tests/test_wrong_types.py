"""Arguments of the wrong type, as a notebook gives them: one clear refusal each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ster
from ster.errors import LayerError, PromptError, SterError, UsageError
from tests import made

# Any, for the types would be refused before they are tried.
STER: Any = ster
ROWS = "rows must be an index, a slice, a mask or a list of indices, not {}"


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> ster.Runtime:
    path = tmp_path_factory.mktemp("types") / "toy"
    ster.write_toy_checkpoint(path)
    return ster.load(path)


@pytest.fixture(scope="module")
def rows(runtime: ster.Runtime) -> ster.Activations:
    return runtime.activations(["the sea", "a storm", "the lake"], layers=[1])


@pytest.fixture
def vector() -> ster.SteeringVector:
    return ster.SteeringVector.of(np.ones((1, 64)), layers=1, model="toy")


def refusal(call: Callable[[], object], kind: type[SterError] = UsageError) -> str:
    with pytest.raises(kind) as refused:
        call()
    assert type(refused.value) is kind
    return refused.value.sentence


@pytest.mark.parametrize(
    ("words", "kind", "sentence"),
    [
        (
            {"points": 3},
            UsageError,
            "points must be names, not 3; expected resid_post, resid_mid, attn_out, or "
            "mlp_out",
        ),
        ({"layers": 1.5}, LayerError, 'invalid layer "1.5"'),
        ({"layers": b"1"}, LayerError, "invalid layer \"b'1'\""),
    ],
)
def test_what_selects_nothing_is_refused(runtime: Any, words, kind, sentence):
    assert refusal(lambda: runtime.activations(["x"], **words), kind) == sentence


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (3, "asked must be a list of strings, not int"),
        ("x", "asked must be a list of strings, not one string"),
        ([3], "asked must be a string, not int"),
        ([" "], "asked must not be empty"),
        (["x", None], "asked has 2 values for 1 prompt"),
    ],
)
def test_what_texts_answer_is_refused_by_its_name(runtime: Any, asked, sentence):
    with pytest.raises(PromptError) as refused:
        runtime.activations(["x"], asked=asked)
    assert refused.value.sentence == sentence
    assert refused.value.field != "prompts"
    if isinstance(asked, list) and len(asked) == 1:
        with pytest.raises(PromptError) as refused:
            runtime.show("x", asked=asked[0])
        assert refused.value.sentence == sentence


def test_an_unknown_method_is_refused_beside_those_that_are_known(runtime: Any):
    pairs = ster.PairSet.of([("a calm sea", "a storm")])
    assert refusal(lambda: runtime.train(pairs, method=3)) == (
        'unknown training method "3"; expected caa, pca, logistic, logreg, or '
        "pca-uncentred"
    )


def test_responses_are_scored_at_least_one_at_a_time(runtime: Any):
    sentence = refusal(lambda: runtime.score_responses(["the sea"], batch_size=0))
    assert sentence == "batch_size must be at least one, not 0"


@pytest.mark.parametrize("given", [0.5, None, True, "0", b"0", [0.5], [[0]], ["a"]])
def test_rows_are_taken_by_whole_numbers(rows: Any, given):
    assert refusal(lambda: rows[given]) == ROWS.format(repr(given))


@pytest.mark.parametrize("given", [(0, 1), (slice(None), 0), (..., 0), ()])
def test_a_tuple_is_no_list_of_rows(rows: Any, given):
    sentence = refusal(lambda: rows[given])
    assert sentence == f"activations take rows alone, not {given!r}"


def test_lists_and_masks_of_rows_are_taken(rows: Any):
    for given in ([2, 0], np.array([2, 0]), np.array([2, 0], np.uint8), [-1, 0]):
        assert np.array_equal(rows[given].array, rows.array[[2, 0]])
    for mask in ([True, False, True], np.array([True, False, True])):
        assert np.array_equal(rows[mask].array, rows.array[[0, 2]])
    for given in ([], [9], np.array([], bool)):
        with pytest.raises(IndexError):
            rows[given]


@pytest.mark.parametrize(("given", "shown"), [("1", '"1"'), (1.0, "1.0"), ([1], "[1]")])
def test_a_layer_is_a_whole_number(rows: Any, vector: Any, given, shown):
    sentence = f"layer must be a whole number, not {shown}"
    assert refusal(lambda: rows.layer(given)) == sentence
    assert refusal(lambda: vector.direction(given)) == sentence
    assert rows.layer(np.int64(1)).shape == (3, 64)


def test_a_point_is_a_name(rows: Any):
    assert refusal(lambda: rows.at_point(3)) == "point must be a string, not 3"


def test_what_is_neither_rows_nor_texts_has_no_projection(vector: Any):
    expected = "rows must be Activations or texts, not {}"
    array = np.ones((2, 64), "f4")
    found = refusal(lambda: vector.project(array))
    assert found == expected.format("ndarray of float32")
    assert refusal(lambda: vector.project(3)) == expected.format("int")


@pytest.mark.parametrize(
    "call",
    [
        lambda rows, vector, runtime: rows.save(3),
        lambda rows, vector, runtime: vector.save(3),
        lambda rows, vector, runtime: runtime.parity(3),
        lambda rows, vector, runtime: runtime.write_activations(["x"], 3),
        lambda rows, vector, runtime: STER.Activations.load(3),
        lambda rows, vector, runtime: STER.SteeringVector.load(3),
        lambda rows, vector, runtime: STER.PairSet.load(3),
        lambda rows, vector, runtime: STER.PairSet.of([("a", "b")]).save(3),
        lambda rows, vector, runtime: STER.PromptSet.load(3),
        lambda rows, vector, runtime: STER.write_toy_checkpoint(3),
    ],
)
def test_a_path_is_a_path(rows: Any, vector: Any, runtime: Any, call):
    sentence = refusal(lambda: call(rows, vector, runtime))
    assert sentence == "a path must be a string or a Path, not 3"


@pytest.mark.parametrize(
    ("name", "argument", "expected"),
    [
        ("accuracy", "measured", "a Selection, an EffectSelection or an Evaluation"),
        ("margin", "measured", "a Selection, an EffectSelection or an Evaluation"),
        ("effect", "selection", "an EffectSelection"),
        ("strengths", "measured", "an Evaluation or a StrengthChoice"),
        ("curve", "measured", "a LearningCurve"),
        ("movement", "projection", "a Projection"),
        ("similarity", "comparison", "a Comparison"),
        ("norms", "activations", "Activations"),
    ],
)
def test_a_plot_is_of_what_it_plots(name, argument, expected):
    draw = getattr(ster.plots, name)
    assert refusal(lambda: draw(3)) == f"{argument} must be {expected}, not int"


def test_a_plot_names_the_choice_that_it_draws(runtime: ster.Runtime):
    with pytest.raises(UsageError) as refused:
        STER.plots.accuracy(3)
    way = 'runtime.optimize(pairs, by="accuracy") returns one'
    assert refused.value.causes[0] == way
    pairs = ster.PairSet.of([(f"the sea {n}", f"a storm {n}") for n in range(6)])
    chosen = runtime.optimize(pairs, by="accuracy", layers=[1])
    assert ster.plots.accuracy(chosen).lines


def test_a_pair_set_is_of_pairs():
    parts: Any = (("a", "b"),)
    sentence = refusal(lambda: ster.PairSet(trait_name="calm", pairs=parts))
    assert sentence == "a pair must be a ContrastPair, not tuple"


def test_a_label_is_named_by_a_string():
    label: Any = None
    prompts = [{"text": "a", "mood": "x"}, {"text": "b", "mood": "y"}]
    sentence = refusal(
        lambda: ster.PairSet.from_labels(prompts, label=label, positive="x")
    )
    assert sentence == "label must be a string, not None"


def test_a_plot_of_two_things_names_the_wrong_one(rows: Any, vector: Any):
    array = "activations must be Activations, not ndarray"
    assert refusal(lambda: ster.plots.pca(rows.array, 1)) == array
    for draw in (STER.plots.projections, STER.plots.projected_text):
        assert refusal(partial(draw, rows.array, vector)) == array
        other = refusal(partial(draw, rows, 3))
        assert other == "vector must be a SteeringVector, not int"


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: STER.plots.accuracy(made.selection(), ax=ax),
        lambda ax: STER.plots.margin(made.evaluation(), ax=ax),
        lambda ax: STER.plots.strengths(made.strength_choice(), ax=ax),
        lambda ax: STER.plots.curve(made.learning_curve(), ax=ax),
        lambda ax: STER.plots.movement(made.projection(), ax=ax),
        lambda ax: STER.plots.similarity(made.comparison(), ax=ax),
        lambda ax: STER.plots.norms(made.activations(), ax=ax),
        lambda ax: STER.plots.pca(made.activations(), 3, ax=ax),
        lambda ax: STER.plots.projections(made.all_tokens(), made.vector(), ax=ax),
    ],
)
def test_a_plot_is_drawn_on_axes(draw):
    assert refusal(lambda: draw(3)) == "ax must be Axes, not int"
    several = np.array([None, None])
    assert refusal(lambda: draw(several)) == "ax must be Axes, not ndarray"


@pytest.mark.parametrize("given", ["x", 1.5, None, [0, 1], (0, 1)])
def test_pairs_are_taken_by_whole_numbers(given):
    pairs: Any = ster.PairSet.of([("a", "b"), ("c", "d")])
    sentence = refusal(lambda: pairs[given])
    assert sentence == f"pairs must be an index or a slice, not {given!r}"
    assert pairs[np.int64(1)] == pairs[-1]
    with pytest.raises(IndexError):
        pairs[2]


def test_a_slice_of_pairs_is_of_whole_numbers():
    pairs: Any = ster.PairSet.of([("a", "b"), ("c", "d")])
    assert refusal(lambda: pairs["a":]) == (
        "pairs must be an index or a slice, not slice('a', None, None)"
    )


def test_a_path_object_and_bytes_are_paths(tmp_path: Path, vector: Any):
    vector.save(tmp_path / "v.json")
    vector.save(bytes(tmp_path / "w.json"))
    assert (tmp_path / "v.json").read_bytes() == (tmp_path / "w.json").read_bytes()
