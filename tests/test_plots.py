"""What the plots draw: the numbers, where, and under which names."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.collections import QuadMesh

import ster
from ster.errors import DirectionError, DocumentError, LayerError, SterError, UsageError
from ster.plots.planes import principal_plane
from ster.plots.styles import style
from tests import made
from tests.drawn import bars, corners, legend, lines, rings

mpl.use("Agg")
pytestmark = pytest.mark.usefixtures("closed_figures")


PLOTS = {
    "norms": lambda ax: ster.plots.norms(made.activations(), ax=ax),
    "pca": lambda ax: ster.plots.pca(made.activations(), 3, ax=ax),
    "effect": lambda ax: ster.plots.effect(made.effect_selection(), ax=ax),
    "accuracy": lambda ax: ster.plots.accuracy(made.selection(), ax=ax),
    "margin": lambda ax: ster.plots.margin(made.evaluation(), ax=ax),
    "strengths": lambda ax: ster.plots.strengths(made.strength_choice(), ax=ax),
    "similarity": lambda ax: ster.plots.similarity(made.comparison(), ax=ax),
    "movement": lambda ax: ster.plots.movement(made.projection(), ax=ax),
    "curve": lambda ax: ster.plots.curve(made.learning_curve(), ax=ax),
    "projections": lambda ax: ster.plots.projections(
        made.all_tokens(), made.vector(), ax=ax
    ),
}


def test_every_plot_is_tried_here():
    assert {*PLOTS, "ProjectedText", "projected_text"} == {*ster.plots.__all__}


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_draws_where_it_is_told_to(name):
    _, ax = plt.subplots()
    assert PLOTS[name](ax) is ax
    assert len(plt.get_fignums()) == 1
    # What strengths damage is drawn below, and has the axis that both share.
    assert plt.gcf().axes[name == "strengths"].get_xlabel()
    assert ax.get_ylabel()


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_makes_its_own_figure_and_can_be_drawn(name):
    ax = PLOTS[name](None)
    other = PLOTS[name](None)
    assert ax is not other
    assert len(plt.get_fignums()) == 2
    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()


def test_a_missing_matplotlib_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SterError, match=r"pip install 'ster-mlx\[notebook\]'"):
        ster.plots.norms(made.activations())


def test_no_two_looks_are_told_apart_by_colour_alone():
    looks = [style(index) for index in range(6)]
    for name in ("color", "marker"):
        assert len({look[name] for look in looks}) == 6
    assert (
        len({(look["marker"], look["color"]) for look in map(style, range(12))}) == 12
    )


def test_norms_are_the_median_and_nine_tenths_of_the_rows():
    acts = made.activations(40, points=("mlp_out",))
    ax = ster.plots.norms(acts)
    lengths = np.linalg.norm(acts.array.astype("f8"), axis=-1)
    x, y = lines(ax)["median"]
    assert x == [1, 3]
    np.testing.assert_allclose(y, np.median(lengths, axis=0), rtol=1e-6)
    drawn = corners(ax)
    lower, upper = np.percentile(lengths, (5, 95), axis=0)
    for layer, low, high in zip((1, 3), lower, upper, strict=True):
        at = drawn[drawn[:, 0] == layer, 1]
        np.testing.assert_allclose([at.min(), at.max()], [low, high], rtol=1e-6)
    assert ax.get_xlabel() == "layer (block index)"
    assert ax.get_ylabel() == "norm of mlp_out (L2)"
    assert legend(ax) == ["median", "5 % to 95 % of rows"]


def test_norms_by_label_have_a_line_each():
    acts = made.activations(labels={"mood": ["calm", "loud", "calm", "calm"]})
    ax = ster.plots.norms(acts, label="mood")
    lengths = acts.norms()
    drawn = lines(ax)
    assert [*drawn] == legend(ax) == ["calm", "loud"]
    np.testing.assert_allclose(drawn["loud"][1], lengths[1])
    np.testing.assert_allclose(drawn["calm"][1], np.median(lengths[[0, 2, 3]], axis=0))
    shown = ax.get_legend()
    assert shown is not None
    assert shown.get_title().get_text() == "mood"


def test_a_label_of_prompts_is_that_of_their_rows():
    acts = made.all_tokens(labels={"mood": ["calm", "loud"]})
    drawn = lines(ster.plots.norms(acts, label="mood"))
    np.testing.assert_allclose(drawn["loud"][1], np.median(acts.norms()[3:], axis=0))


@pytest.mark.parametrize(
    ("label", "sentence"),
    [
        ("mood", 'no label "mood"; there are topic: a list of one value for each'),
        ([1, 2], "labels must be one for each of 13 rows, not 2"),
        (range(13), "a plot tells 12 groups apart, and the label has 13"),
    ],
)
def test_a_label_that_tells_no_groups_is_refused_before_anything_is_drawn(
    label, sentence
):
    acts = made.activations(13, labels={"topic": range(13)})
    with pytest.raises(DocumentError, match=sentence):
        ster.plots.norms(acts, label=label)
    with pytest.raises(DocumentError, match=sentence):
        ster.plots.pca(acts, 3, label=label)
    assert plt.get_fignums() == []


def test_a_formula_in_a_name_is_text():
    acts = made.activations(labels={"$x_1$": ["$\\frac$", "b"] * 2})
    ax = ster.plots.norms(acts, label="$x_1$")
    figure = ax.get_figure()
    assert figure is not None
    figure.canvas.draw()
    assert legend(ax)[0] == r"\$\frac\$"


@pytest.mark.parametrize("num_rows", [3, 5, 40])
def test_a_plane_is_that_of_the_singular_vectors(num_rows):
    rows = made.activations(num_rows).layer(3)
    points, shares = principal_plane(rows)
    centred = rows.astype("f8") - rows.astype("f8").mean(axis=0)
    left, values, right = np.linalg.svd(centred, full_matrices=False)
    expected = left[:, :2] * values[:2]
    signs = np.sign(right[np.arange(2), np.abs(right[:2]).argmax(axis=1)])
    np.testing.assert_allclose(points, expected * signs, atol=1e-9)
    np.testing.assert_allclose(shares, values[:2] ** 2 / np.sum(values**2))


def test_rows_of_one_place_or_line_have_a_plane_too():
    points, shares = principal_plane(np.ones((4, 6), np.float32))
    assert not points.any()
    assert shares.tolist() == [0, 0]
    line = np.outer(np.arange(4), np.ones(6)).astype(np.float32)
    points, shares = principal_plane(line)
    np.testing.assert_allclose(shares, [1, 0], atol=1e-9)
    points, shares = principal_plane(np.arange(4, dtype=np.float32)[:, None])
    np.testing.assert_allclose(shares, [1, 0])
    with pytest.raises(DirectionError, match="at least two rows"):
        principal_plane(np.ones((1, 6), np.float32))


def test_a_plane_marks_labels_and_says_what_it_explains():
    acts = made.activations(labels={"mood": ["calm", "loud", "calm", "calm"]})
    ax = ster.plots.pca(acts, 3, label="mood")
    points, shares = principal_plane(acts.layer(3))
    drawn = lines(ax)
    assert [*drawn] == legend(ax) == ["calm", "loud"]
    np.testing.assert_allclose(np.transpose(drawn["calm"]), points[[0, 2, 3]])
    calm, loud = ax.lines
    assert calm.get_marker() != loud.get_marker()
    assert calm.get_color() != loud.get_color()
    assert ax.get_xlabel() == f"component 1 of layer 3 ({shares[0]:.0%})"
    assert ax.get_ylabel() == f"component 2 of layer 3 ({shares[1]:.0%})"


def test_pairs_are_joined():
    acts = made.activations()
    ax = ster.plots.pca(acts, 3, pairs=True)
    points, _ = principal_plane(acts.layer(3))
    joined: Any = np.array(ax.lines[0].get_data()).T
    np.testing.assert_allclose(joined[[0, 1, 3, 4]], points)
    assert np.isnan(joined[[2, 5]]).all()
    assert legend(ax) == ["positive", "negative"]
    np.testing.assert_allclose(np.transpose(lines(ax)["negative"]), points[1::2])


@pytest.mark.parametrize("acts", [made.activations(3), made.all_tokens()])
def test_rows_that_are_no_pairs_are_refused(acts):
    with pytest.raises(DirectionError, match="rows that alternate"):
        ster.plots.pca(acts, 3, pairs=True)


def test_a_layer_that_was_not_read_has_no_plane():
    with pytest.raises(LayerError, match="layer 2 was not read, only layers 1, 3"):
        ster.plots.pca(made.activations(), 2)


def test_accuracy_stands_beside_chance_and_the_choice_is_ringed():
    ax = ster.plots.accuracy(made.selection())
    assert legend(ax) == [
        "random directions, mean to 95th percentile",
        "95th percentile at their best layer",
        "chosen: pca, layer 1",
        "caa",
        "pca",
    ]
    drawn = lines(ax)
    assert drawn["caa"][1] == [0.5, 0.5]
    assert drawn["pca"][1] == [0.5, 0.75]
    assert np.round(drawn["pca"][0]).tolist() == [0, 1]
    assert drawn["95th percentile at their best layer"][1] == [0.875, 0.875]
    assert bars(ax, "pca").tolist() == [[0.25, 0.875]] * 2
    assert rings(ax) == [drawn["pca"][0][1], 0.75]
    vertices = corners(ax)
    for layer, upper in ((0, 0.5), (1, 0.625)):
        at = vertices[vertices[:, 0] == layer, 1]
        assert (at.min(), at.max()) == (0.5, upper)
    assert ax.get_ylabel() == "accuracy (share of pairs ordered)"


def test_accuracy_of_a_vector_has_nothing_chosen():
    ax = ster.plots.accuracy(made.evaluation())
    assert legend(ax) == ["random directions, mean to 95th percentile", "caa"]
    assert lines(ax)["caa"] == ([0, 1], [0.5, 0.75])
    assert rings(ax) == []


def test_a_choice_by_effect_is_drawn_by_how_it_orders_pairs_too():
    chosen = made.effect_selection()
    ax = ster.plots.accuracy(chosen)
    assert lines(ax)["caa"] == ([-0.07, 1 - 0.07], [0.5, 0.75])
    assert bars(ax, "logreg").tolist() == [[0.25, 1], [0.5, 1]]
    assert rings(ax) == [1 - 0.07, 0.75]
    assert {*corners(ax)[:, 1]} == {0.5, 0.75}
    assert "95th percentile at their best layer" not in legend(ax)
    ax = ster.plots.margin(chosen)
    assert lines(ax)["logreg"] == ([0.07, 1 + 0.07], [1, 2])
    assert rings(ax) == [1 - 0.07, 2]
    assert {*corners(ax)[:, 1]} == {-0.25, 0.25}


def test_effects_stand_beside_those_of_random_directions():
    ax = ster.plots.effect(made.effect_selection())
    assert lines(ax)["caa"] == ([-0.07, 1 - 0.07], [0.5, 2])
    assert bars(ax, "caa").tolist() == [[0, 1], [1.5, 2.5]]
    # The other one was not steered with at layer 0, and has no interval at 1.
    assert lines(ax)["logreg"] == ([1 + 0.07], [1])
    assert bars(ax, "logreg").tolist() == [[1, 1]]
    assert lines(ax)["3 random directions"] == ([1 - 0.07] * 3, [-0.5, 0.25, 0.125])
    assert rings(ax) == [1 - 0.07, 2]
    assert [*legend(ax)] == [
        "3 random directions", "chosen: caa, layer 1", "caa", "logreg"
    ]  # fmt: skip
    assert ax.get_ylabel() == "effect at 0.1n (nats per pair)"


def test_a_choice_by_accuracy_has_no_effects():
    with pytest.raises(UsageError, match=r"must be an EffectSelection, not Selection"):
        ster.plots.effect(made.selection())  # type: ignore[arg-type]


def test_margins_have_their_intervals_and_those_of_chance():
    ax = ster.plots.margin(made.evaluation())
    assert lines(ax)["caa"] == ([0, 1], [1, 2])
    assert bars(ax, "caa").tolist() == [[0.5, 1.5], [0.5, 3.5]]
    vertices = corners(ax)
    assert {*vertices[:, 1]} == {-0.25, 0.25}
    assert ax.get_ylabel() == "margin (units of the residual stream)"
    chosen = ster.plots.margin(made.selection())
    assert rings(chosen)[1] == 0.5
    assert bars(chosen, "pca").tolist() == [[0, 0], [0.5, 0.5]]


def test_one_layer_is_a_plot_too():
    ax = ster.plots.accuracy(made.evaluation(num_layers=1))
    vertices = corners(ax)
    assert np.ptp(vertices[:, 0]) == pytest.approx(0.8)
    assert ax.get_xlim() == (-1, 1)


def test_projections_are_a_map_of_layers_and_tokens():
    acts, vector = made.all_tokens(), made.vector()
    ax = ster.plots.projections(acts, vector)
    (mesh,) = (each for each in ax.collections if isinstance(each, QuadMesh))
    np.testing.assert_allclose(np.asarray(mesh.get_array()), vector.project(acts)[:3].T)
    assert [each.get_text() for each in ax.get_xticklabels()] == [
        "<s>",
        "·<b>sea</b>",
        "↵",
    ]
    assert [each.get_text() for each in ax.get_yticklabels()] == ["1", "3"]
    assert ax.get_xlabel() == "token of prompt 0"
    figure = ax.get_figure()
    assert figure is not None
    assert figure.axes[1].get_ylabel() == "projection on calm"


def far_off(in_template: bool) -> tuple[Any, Any, Any]:
    """Make a text whose first token lies far beyond the others, and its projections."""
    acts, vector = made.all_tokens(), made.vector((3,))
    tokens = acts.tokens
    assert tokens is not None
    flags = np.array([in_template, False, False, True, False])
    array = acts.array.copy()
    array[0] = -1000 * vector.array[0]
    acts = replace(acts, array=array, tokens=replace(tokens, in_template=flags))
    own = array[1:3, 1].astype("f8") @ vector.array[0].astype("f8")
    return acts, vector, own / np.linalg.norm(vector.array[0].astype("f8"))


@pytest.mark.parametrize("in_template", [True, False])
def test_the_first_token_does_not_take_all_colours(in_template):
    """It is the template's, or else where a model puts what it has no use for."""
    acts, vector, own = far_off(in_template)
    ax = ster.plots.projections(acts, vector)
    (mesh,) = (each for each in ax.collections if isinstance(each, QuadMesh))
    assert mesh.get_clim() == pytest.approx((own.min(), own.max()))
    assert mesh.colorbar is not None
    assert mesh.colorbar.extend == "min"
    shown = ster.plots.projected_text(acts, vector)
    assert shown.scale == pytest.approx(np.abs(own).max())


def test_colours_span_all_rows_where_nothing_lies_beyond():
    ax = ster.plots.projections(made.activations(), made.vector())
    (mesh,) = (each for each in ax.collections if isinstance(each, QuadMesh))
    table = np.asarray(mesh.get_array())
    assert mesh.get_clim() == (table.min(), table.max())
    assert mesh.colorbar is not None
    assert mesh.colorbar.extend == "neither"


def test_projections_by_cosine_are_between_minus_one_and_one():
    acts, vector = made.all_tokens(), made.vector((3,))
    ax = ster.plots.projections(acts, vector, prompt=1, cosine=True)
    (mesh,) = (each for each in ax.collections if isinstance(each, QuadMesh))
    rows = acts.layer(3)[3:].astype("f8")
    direction = vector.array[0].astype("f8")
    expected = rows @ direction / np.linalg.norm(rows, axis=1)
    expected /= np.linalg.norm(direction)
    np.testing.assert_allclose(np.asarray(mesh.get_array())[0], expected, rtol=1e-6)


def test_projections_of_one_token_each_are_those_of_all_prompts():
    ax = ster.plots.projections(made.activations(), made.vector())
    names = [each.get_text() for each in ax.get_xticklabels()]
    assert names == [f"prompt {number}" for number in range(4)]
    assert ax.get_xlabel() == "prompt (token: last)"
    with pytest.raises(DocumentError, match="no row of prompt 4; prompts count from 0"):
        ster.plots.projections(made.activations(), made.vector(), prompt=4)


def test_many_tokens_are_not_all_named():
    acts = made.activations(200)
    ax = ster.plots.projections(acts, made.vector())
    names = [each.get_text() for each in ax.get_xticklabels()]
    assert names == [f"prompt {number}" for number in range(0, 200, 4)]


def test_a_text_is_coloured_by_its_projection():
    acts, vector = made.all_tokens(), made.vector((1, 3))
    shown = ster.plots.projected_text(acts, vector, 3)
    values = vector.project(acts)[:3, 1]
    np.testing.assert_allclose(shown.values, values)
    # The first token is the template's.
    assert shown.scale == np.abs(values[1:]).max()
    page = shown._repr_html_()
    assert re.findall(r'title="([^"]*)"', page) == [f"{each:+.4g}" for each in values]
    spans = re.findall(r'<span title="[^"]*" style="([^"]*)">(.*?)</span><wbr>', page)
    texts = [words for _, words in spans]
    assert texts == ["&lt;s&gt;", "·&lt;b&gt;sea&lt;/b&gt;", "↵<br>"]
    for (look, _), value in zip(spans, values, strict=True):
        colour = "213, 94, 0" if value > 0 else "0, 114, 178"
        depth = 0.6 * min(1, abs(value) / shown.scale)
        assert f"rgba({colour}, {depth:.2f})" in look
        sign = "solid" if value > 0 else "dotted"
        assert f"2px {sign if depth > 0.15 else 'hidden'} currentColor" in look


def test_a_coloured_text_has_a_plain_repr():
    acts, vector = made.all_tokens(), made.vector((3,))
    shown = ster.plots.projected_text(acts, vector, prompt=1)
    low, high = sorted(vector.project(acts)[3:, 0])
    assert repr(shown) == (
        f"ProjectedText('calm', layer 3, 2 tokens, {low:.4g} to {high:.4g})"
    )


def test_a_coloured_text_escapes_what_is_hostile_and_ends():
    hostile = "<script>\x1b\u202e"
    shown = ster.plots.ProjectedText(
        tokens=(hostile,) * 2500,
        values=np.zeros(2500),
        scale=0.0,
        layer=1,
        trait_name=hostile,
    )
    page = shown._repr_html_()
    assert "<script" not in page
    assert page.count(r"&lt;script&gt;\u{1b}\u{202e}") == 2001
    assert page.endswith(" … 500 more tokens</div>")


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        (
            {"layer": None},
            LayerError,
            "which layer of the vector[?] it has layers 1, 3",
        ),
        ({"layer": 2}, LayerError, "the vector has no layer 2"),
        ({"prompt": 2}, DocumentError, "no row of prompt 2; prompts count from 0 to 1"),
        ({"activations": made.activations()}, DocumentError, "do not say which tokens"),
        (
            {"activations": replace(made.all_tokens(), layers=(0, 1))},
            LayerError,
            "layer 3 of the vector was not read",
        ),
    ],
)
def test_what_cannot_be_coloured_is_refused(change, error, sentence):
    known = {"activations": made.all_tokens(), "vector": made.vector(), "layer": 3}
    with pytest.raises(error, match=sentence):
        ster.plots.projected_text(**(known | change))
