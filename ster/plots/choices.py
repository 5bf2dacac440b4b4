"""What steering with each candidate of a choice by effect does, beside chance."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

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
from ster.text import counted
from ster.vectors.effect_selection import EffectSelection

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def effect(selection: EffectSelection, *, ax: Axes | None = None) -> Axes:
    """Draw what steering with each candidate does, by layer and method.

    The effect is in nats per pair, with its 95 % confidence interval. Dots are random
    directions of the same length, which were tried at the layer of the best candidate
    alone. The chosen candidate is ringed. One that was not steered with, because it
    read no better than chance, is missing.

    Args:
        selection: What ``runtime.optimize`` returned, unless it chose by accuracy.
        ax: Where to draw; a new figure if not given.

    Raises:
        SterError: matplotlib is not installed.
    """
    require_type(selection, EffectSelection, "selection")
    ax = take_axes(ax)
    ax.axhline(0, color=GREY, lw=0.8)
    for index, shift, method, candidates in by_method(
        selection.candidates, attrgetter("method")
    ):
        steered = [
            (each.layer + shift, each.effect)
            for each in candidates
            if each.effect is not None
        ]
        if steered:
            draw_intervals(
                ax,
                [x for x, _ in steered],
                [found.mean for _, found in steered],
                [found.interval or (found.mean, found.mean) for _, found in steered],
                label=plain(method),
                **style(index),
            )
        if method == selection.best.method:
            _mark_best(ax, selection, selection.best.layer + shift)
    ax.set_ylabel(f"effect at {plain(selection.strength)} (nats per pair)")
    mark_layers(ax, [each.layer for each in selection.candidates])
    put_legend(ax)
    return ax


def _mark_best(ax: Axes, selection: EffectSelection, x: float) -> None:
    """Ring the chosen candidate, and draw what random directions do at its layer."""
    effects, best = selection.random_effects, selection.best
    ax.plot(
        [x] * len(effects),
        effects,
        color=GREY,
        marker=".",
        linestyle="none",
        label=counted(len(effects), "random direction"),
    )
    ring(ax, x, selection.effect.mean, best.method, best.layer)
