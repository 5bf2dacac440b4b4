"""How layers order pairs, beside what chance reaches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ster.errors import require_type
from ster.plots.styles import (
    GREY,
    by_method,
    draw_intervals,
    mark_layers,
    plain,
    put_legend,
    ring,
    style,
    take_axes,
)
from ster.vectors.effect_selection import EffectCandidate, EffectSelection
from ster.vectors.selection import Candidate, Evaluation, LayerScore, Selection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Scored = Candidate | LayerScore
Measured = Selection | EffectSelection | Evaluation
_TYPES = (Selection, EffectSelection, Evaluation)


def accuracy(measured: Measured, *, ax: Axes | None = None) -> Axes:
    """Draw the share of pairs that each layer orders, by method.

    Bars are 95 % confidence intervals. The grey band is what random directions reach
    on the same pairs, from their mean to their 95th percentile; of a choice by accuracy
    the dotted line is that percentile for the best of all layers, which a chosen
    candidate has to exceed. The chosen candidate is ringed. ``effect`` draws what a
    choice by effect was made by.

    Args:
        measured: What ``runtime.evaluate`` or ``runtime.optimize`` returned.
        ax: Where to draw; a new figure if not given.

    Raises:
        SterError: matplotlib is not installed.
    """
    require_type(measured, _TYPES, "measured")
    ax = take_axes(ax)
    layers, first = _by_layer(_scored(measured))
    _band(
        ax,
        layers,
        [each.random.mean for each in first],
        [each.random.percentile_95 for each in first],
        "random directions, mean to 95th percentile",
    )
    if isinstance(measured, Selection):
        ax.axhline(
            measured.random_best.percentile_95,
            color=GREY,
            linestyle=":",
            label="95th percentile at their best layer",
        )
    _draw_methods(ax, measured, "accuracy", lambda each: each.interval)
    ax.set_ylabel("accuracy (share of pairs ordered)")
    ax.set_ylim(-0.03, 1.03)
    return _finish(ax, layers)


def margin(measured: Measured, *, ax: Axes | None = None) -> Axes:
    """Draw the mean of positive less negative score at each layer, by method.

    Bars are 95 % confidence intervals, missing where there is a single pair and in a
    choice by effect. Of 20 random directions of the same length 19 stay within the grey
    band. The chosen candidate is ringed.

    Args:
        measured: What ``runtime.evaluate`` or ``runtime.optimize`` returned.
        ax: Where to draw; a new figure if not given.

    Raises:
        SterError: matplotlib is not installed.
    """
    require_type(measured, _TYPES, "measured")
    ax = take_axes(ax)
    layers, first = _by_layer(_scored(measured))
    chance = np.array([each.random_margin or 0.0 for each in first])
    _band(ax, layers, -chance, chance, "95 % of random directions")
    ax.axhline(0, color=GREY, lw=0.8)
    _draw_methods(
        ax,
        measured,
        "margin",
        lambda each: each.margin_interval or (each.margin, each.margin),
    )
    ax.set_ylabel("margin (units of the residual stream)")
    return _finish(ax, layers)


def _scored(measured: Measured) -> Sequence[Scored]:
    if isinstance(measured, EffectSelection):
        return [_read(each) for each in measured.candidates]
    return measured.candidates if isinstance(measured, Selection) else measured.layers


def _read(candidate: EffectCandidate) -> Candidate:
    """Take how a candidate of a choice by effect ordered pairs of other folds."""
    reading = candidate.reading
    return Candidate(
        layer=candidate.layer,
        method=candidate.method,
        accuracy=reading.accuracy,
        margin=reading.margin,
        effect_size=None,
        interval=reading.interval,
        random=reading.random,
        selected=candidate.selected,
        random_margin=reading.random_margin,
    )


def _by_layer(scored: Sequence[Scored]) -> tuple[list[int], list[Scored]]:
    """Return the layers and one score of each; chance is the same for all methods."""
    first: dict[int, Scored] = {}
    for each in scored:
        first.setdefault(each.layer, each)
    layers = sorted(first)
    return layers, [first[layer] for layer in layers]


def _method(each: Scored) -> str:
    return each.method if isinstance(each, Candidate) else ""


def _draw_methods(
    ax: Axes,
    measured: Measured,
    name: str,
    interval: Callable[[Scored], tuple[float, float]],
) -> None:
    """Draw a measure of each method by layer, and ring the chosen candidate."""
    for index, shift, method, of_method in by_method(_scored(measured), _method):
        draw_intervals(
            ax,
            [each.layer + shift for each in of_method],
            [getattr(each, name) for each in of_method],
            [*map(interval, of_method)],
            label=plain(method) or plain(measured.vector.method),
            **style(index),
        )
        _ring(ax, of_method, shift, name)


def _band(
    ax: Axes,
    layers: Sequence[int],
    lower: Sequence[float] | np.ndarray[Any, Any],
    upper: Sequence[float] | np.ndarray[Any, Any],
    label: str,
) -> None:
    """Fill a band; that of a single layer has a width too."""
    x = [layers[0] - 0.4, *layers, layers[-1] + 0.4]
    low, high = ([ends[0], *ends, ends[-1]] for ends in (lower, upper))
    ax.fill_between(x, low, high, color=GREY, alpha=0.25, lw=0, label=label)


def _ring(ax: Axes, of_method: Sequence[Scored], shift: float, name: str) -> None:
    for each in of_method:
        if isinstance(each, Candidate) and each.selected:
            x, y = each.layer + shift, getattr(each, name)
            ring(ax, x, y, each.method, each.layer)


def _finish(ax: Axes, layers: Sequence[int]) -> Axes:
    mark_layers(ax, layers)
    put_legend(ax)
    return ax
