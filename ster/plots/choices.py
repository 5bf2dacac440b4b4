"""What steering with each candidate of a choice by effect does, beside chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ster.errors import require_type
from ster.plots.styles import (
    GREY,
    RING,
    draw_intervals,
    mark_layers,
    plain,
    put_legend,
    shift_of,
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
    best = selection.best
    methods = [*dict.fromkeys(each.method for each in selection.candidates)]
    for index, method in enumerate(methods):
        shift = shift_of(index, len(methods))
        steered = [
            (each.layer, each.effect)
            for each in selection.candidates
            if each.method == method and each.effect is not None
        ]
        if not steered:
            continue
        draw_intervals(
            ax,
            [layer + shift for layer, _ in steered],
            [found.mean for _, found in steered],
            [found.interval or (found.mean, found.mean) for _, found in steered],
            label=plain(method),
            **style(index),
        )
    x = best.layer + shift_of(methods.index(best.method), len(methods))
    ax.plot(
        [x] * len(selection.random_effects),
        selection.random_effects,
        color=GREY,
        marker=".",
        linestyle="none",
        label=counted(len(selection.random_effects), "random direction"),
    )
    label = f"chosen: {plain(best.method)}, layer {best.layer}"
    ax.scatter(x, selection.effect.mean, label=label, **RING)
    ax.set_ylabel(f"effect at {plain(selection.strength)} (nats per pair)")
    mark_layers(ax, [each.layer for each in selection.candidates])
    put_legend(ax)
    return ax
