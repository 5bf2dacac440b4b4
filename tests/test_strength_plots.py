"""What the plot of strengths draws: effects, chance, damage and the choice."""

from __future__ import annotations

import math
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

import ster
from ster.errors import DirectionError
from ster.vectors.controls import ControlEffects
from ster.vectors.effects import Effect
from tests import made
from tests.drawn import bars, legend, lines, rings

mpl.use("Agg")
pytestmark = pytest.mark.usefixtures("closed_figures")


def below(ax: Axes) -> Axes:
    """Return the other Axes of the figure."""
    figure = ax.get_figure()
    assert figure is not None
    (other,) = (each for each in figure.axes if each is not ax)
    return other


def test_effects_are_drawn_in_order_with_the_chosen_strength_ringed():
    ax = ster.plots.strengths(made.evaluation(measured=True))
    assert lines(ax)["effect, 95 % interval"] == ([-2, 2, 4], [-0.5, 0.5, 1])
    assert bars(ax, "effect, 95 % interval").tolist() == [[-1, 0], [0, 1], [0.5, 1.5]]
    assert rings(ax) == [4, 1]
    assert ax.get_ylabel() == "effect (nats per pair)"
    shown = ax.get_legend()
    assert shown is not None
    assert shown.get_title().get_text() == "caa at layers 1, 3 on 8 pairs"
    assert legend(ax) == [
        "effect, 95 % interval",
        "above: 1 random direction in 1000",
        "2 random directions",
        "chosen: 4",
        "damage of neutral answers",
        "at most 0.5",
    ]
    with pytest.raises(DirectionError, match="measured no strengths: runtime.evaluate"):
        ster.plots.strengths(made.evaluation())


def test_damage_stands_below_effects_with_its_bound():
    choice = made.strength_choice(chosen=False)
    ax = ster.plots.strengths(choice)
    damage = below(ax)
    assert lines(damage)["damage of neutral answers"] == (
        [-2, 2, 4],
        [0.125, 0.125, 0.75],
    )
    assert lines(damage)["at most 0.5"][1] == [0.5, 0.5]
    assert damage.get_position().y1 < ax.get_position().y0
    assert damage.get_ylabel() == "damage\n(nats per token)"
    assert damage.get_xlabel() == "strength (times the vector)"
    assert damage.get_xlim() == ax.get_xlim()
    assert rings(ax) == []
    unbounded = ster.plots.strengths(replace(choice, max_damage=math.inf))
    assert legend(unbounded)[-1] == "damage of neutral answers"


def test_copies_stand_beside_the_effect_and_what_one_in_1000_reaches():
    copies = ControlEffects(effects=(0.1, -0.3, 0.2) * 4, own=1.0, num_pairs=8)
    choice = replace(
        made.strength_choice(),
        candidates=(
            made.measured_strength(2.0, controls=copies),
            made.measured_strength(0.0, 0.0, controls=None),
        ),
    )
    ax = ster.plots.strengths(choice)
    places, effects = lines(ax)["12 random directions"]
    assert places == [2] * 12
    assert effects == [0.1, -0.3, 0.2] * 4
    (spans,) = (
        each.get_segments()
        for each in ax.collections
        if isinstance(each, LineCollection) and str(each.get_label()).startswith("abov")
    )
    # Of a table: Student's t of twelve degrees of freedom, and the root mean square.
    reached = 3.930 * (0.14 / 3) ** 0.5
    np.testing.assert_allclose(spans, [[[2, -reached], [2, reached]]], rtol=1e-3)
    assert -ax.get_ylim()[0] == ax.get_ylim()[1] > 1.5


def test_what_a_single_copy_tells_does_not_dwarf_the_effect():
    copies = ControlEffects(effects=(0.5,), own=1.0, num_pairs=8)
    assert copies.reached_by(0.001) > 150
    only = made.measured_strength(2.0, controls=copies)
    ax = ster.plots.strengths(replace(made.strength_choice(), candidates=(only,)))
    assert 1.5 < ax.get_ylim()[1] < 4


def test_without_random_directions_effects_are_drawn_alone():
    choice = made.strength_choice()
    alone = tuple(replace(each, controls=None) for each in choice.candidates)
    ax = ster.plots.strengths(replace(choice, candidates=alone))
    assert legend(ax) == [
        "effect, 95 % interval",
        "chosen: 4",
        "damage of neutral answers",
        "at most 0.5",
    ]


def test_a_single_pair_has_no_interval_and_what_does_nothing_is_drawn():
    nothing = Effect(mean=0.0, standard_error=None, interval=None)
    copies = ControlEffects(effects=(0.0, 0.0), own=0.0, num_pairs=1)
    only = replace(made.measured_strength(2.0), effect=nothing, controls=copies)
    ax = ster.plots.strengths(replace(made.strength_choice(), candidates=(only,)))
    assert bars(ax, "effect, 95 % interval").tolist() == [[0, 0]]


def test_strengths_in_norms_stand_where_they_are_spelled():
    candidates = (
        made.measured_strength(12.0, strength_word="0.3n", selected=True),
        made.measured_strength(-4.0, -0.5, strength_word="-0.1n"),
        made.measured_strength(0.0, 0.0, controls=None),
    )
    choice = replace(made.strength_choice(), candidates=candidates)
    ax = ster.plots.strengths(choice)
    assert lines(ax)["effect, 95 % interval"] == ([-0.1, 0, 0.3], [-0.5, 0, 1])
    assert below(ax).get_xlabel() == "strength (n: a layer's mean residual norm)"
    assert rings(ax) == [0.3, 1]
    assert "chosen: 0.3n" in legend(ax)
    mixed = (*candidates, made.measured_strength(2.0, 0.5))
    ax = ster.plots.strengths(replace(choice, candidates=mixed))
    assert lines(ax)["effect, 95 % interval"][0] == [-4, 0, 2, 12]


def test_strengths_share_the_place_of_the_axes_that_they_are_given():
    figure, axes = plt.subplots(1, 2)
    places = [each.get_position().bounds for each in axes]
    ster.plots.strengths(made.strength_choice(), ax=axes[1])
    own = figure.add_axes((0.1, 0.2, 0.3, 0.6))
    ster.plots.strengths(made.strength_choice(), ax=own)
    assert axes[0].get_position().bounds == places[0]
    _, _, damage, _, other = figure.axes
    for upper, lower, place in (
        (axes[1], damage, places[1]),
        (own, other, (0.1, 0.2, 0.3, 0.6)),
    ):
        left, bottom, width, height = place
        low, high = lower.get_position(), upper.get_position()
        assert (low.x0, low.y0) == pytest.approx((left, bottom))
        assert (high.x1, high.y1) == pytest.approx((left + width, bottom + height))
        assert low.height < high.height
        assert low.y1 < high.y0
