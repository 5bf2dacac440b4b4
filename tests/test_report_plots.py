"""What the plots of comparisons, projections and learning curves draw."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

import ster
from ster.errors import LayerError
from ster.vectors.strengths import Strength
from tests import made

mpl.use("Agg")
pytestmark = pytest.mark.usefixtures("closed_figures")


def lines(ax: Axes) -> dict[str, Any]:
    """Return the points of each named line, (num_points, 2), and its marks."""
    return {str(line.get_label()): line for line in ax.lines}


def points(line: Any) -> Any:
    return np.transpose(line.get_data()).astype(float)


def legend(ax: Axes) -> list[str]:
    shown = ax.get_legend()
    assert shown is not None
    return [text.get_text() for text in shown.get_texts()]


def test_similarities_stand_cluster_by_cluster():
    ax = ster.plots.similarity(made.comparison())
    names = ["east (caa)", "-1 × east (caa)", r"\$up\$"]
    assert [each.get_text() for each in ax.get_xticklabels()] == names
    assert [each.get_text() for each in ax.get_yticklabels()] == names
    (image,) = ax.images
    expected = [[1, -1, 0], [-1, 1, 0], [0, 0, 1]]
    np.testing.assert_allclose(np.asarray(image.get_array()), expected)
    assert image.get_clim() == (-1, 1)
    written = [each.get_text() for each in ax.texts]
    assert written == [f"{value:.2f}" for row in expected for value in row]
    borders = [np.asarray(line.get_data()).tolist() for line in ax.lines]
    assert borders == [[[0, 1], [1.5, 1.5]], [[1.5, 1.5], [0, 1]]]
    figure = ax.get_figure()
    assert figure is not None
    assert figure.axes[1].get_ylabel() == "mean cosine, layers 1, 3"


def test_similarities_of_one_layer_are_those_of_that_layer():
    found = made.comparison()
    ax = ster.plots.similarity(found, 3)
    (image,) = ax.images
    np.testing.assert_allclose(
        np.asarray(image.get_array()), found.cosines[1][np.ix_([0, 2, 1], [0, 2, 1])]
    )
    figure = ax.get_figure()
    assert figure is not None
    assert figure.axes[1].get_ylabel() == "cosine at layer 3"
    with pytest.raises(LayerError, match="layer 2 was not compared, only layers 1, 3"):
        ster.plots.similarity(found, 2)


def test_a_movement_leads_from_hollow_marks_to_filled_ones():
    ax = ster.plots.movement(made.projection())
    assert legend(ax) == [
        "positive",
        "positive, steered",
        "negative",
        "negative, steered",
    ]
    drawn = lines(ax)
    # Unsteered, two pairs, two sides, two components: 0 to 7; steered 8 to 15.
    assert points(drawn["positive"]).tolist() == [[0, 1], [4, 5]]
    assert points(drawn["negative, steered"]).tolist() == [[10, 11], [14, 15]]
    assert drawn["positive"].get_fillstyle() == "none"
    assert drawn["positive, steered"].get_fillstyle() == "full"
    path = points(ax.lines[0])
    assert path[[0, 1, 3, 4]].tolist() == [[0, 1], [8, 9], [4, 5], [12, 13]]
    assert np.isnan(path[[2, 5]]).all()
    assert ax.get_xlabel() == "component 1 of layer 3 (50%)"
    assert ax.get_ylabel() == "component 2 of layer 3 (25%)"
    shown = ax.get_legend()
    assert shown is not None
    assert shown.get_title().get_text() == "calm at 2"


def test_a_movement_on_one_component_numbers_the_pairs():
    strength = Strength(value=0.5, of_norm=True)
    ax = ster.plots.movement(made.projection(1, strength=strength))
    drawn = lines(ax)
    assert points(drawn["negative"]).tolist() == [[1, 0], [3, 1]]
    assert points(drawn["positive, steered"]).tolist() == [[4, 0], [6, 1]]
    assert ax.get_ylabel() == "pair"
    shown = ax.get_legend()
    assert shown is not None
    assert shown.get_title().get_text() == "calm at 0.5n"


def test_a_movement_draws_the_first_two_of_many_components():
    ax = ster.plots.movement(made.projection(3))
    assert points(lines(ax)["positive"]).tolist() == [[0, 1], [6, 7]]


def test_a_curve_has_a_line_for_each_layer_from_small_to_large():
    ax = ster.plots.curve(made.learning_curve())
    drawn = lines(ax)
    assert legend(ax) == ["layer 0", "layer 1", "95 % of random directions"]
    assert points(drawn["layer 0"]).tolist() == [[2, 0.75], [4, 0.75], [8, 0.5]]
    assert points(drawn["layer 1"]).tolist() == [[2, 1], [4, 0.5], [8, 0.5]]
    assert drawn["layer 0"].get_marker() != drawn["layer 1"].get_marker()
    assert drawn["95 % of random directions"].get_ydata() == [0.5, 0.5]
    assert ax.get_xlabel() == "pairs fitted on (caa)"
    assert ax.get_ylabel() == "accuracy on 4 held-out pairs"


def test_a_curve_of_one_layer_has_intervals():
    ax = ster.plots.curve(made.learning_curve(), 1)
    assert legend(ax) == ["layer 1", "95 % of random directions"]
    (bars,) = (each for each in ax.collections if isinstance(each, LineCollection))
    expected = [[[size, 0.25], [size, 0.875]] for size in (2, 4, 8)]
    assert np.array(bars.get_segments()).tolist() == expected
    with pytest.raises(LayerError, match="layer 2 was not measured, only layers 0, 1"):
        ster.plots.curve(made.learning_curve(), 2)


def test_a_curve_of_many_layers_shows_the_most_accurate():
    ax = ster.plots.curve(made.learning_curve(9))
    names = [f"layer {layer}" for layer in range(6)]
    assert legend(ax) == [*names, "95 % of random directions"]
    shown = ax.get_legend()
    assert shown is not None
    assert shown.get_title().get_text() == "the best of 9 layers"
