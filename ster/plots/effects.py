"""What steering does at each strength, beside what chance does and what it damages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ster.errors import DirectionError, require_type
from ster.layers import name_layers
from ster.plots.styles import (
    GREY,
    RING,
    draw_intervals,
    plain,
    put_legend,
    split_axes,
    style,
    take_axes,
)
from ster.text import counted
from ster.vectors.measured import MAX_CHANCE, MeasuredStrength, StrengthChoice
from ster.vectors.selection import Evaluation
from ster.vectors.strengths import parse_strengths

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer

# How much of the plot is left free at either end.
_ROOM = 1.1
# Of the plot, what chance reaches may take so much more than all else.
_MOST_CHANCE = 2.0


def strengths(measured: Evaluation | StrengthChoice, *, ax: Axes | None = None) -> Axes:
    """Draw what steering does at each strength: its effect, and what it damages.

    The effect is in nats per pair, with its 95 % confidence interval. Dots are the
    effects of copies of the vector that are turned at random, on 16 of the pairs at
    most; one of 1000 such copies has an effect above the grey bar. Below, on a second
    Axes of the figure, is the damage, and the dotted line is its bound. A strength
    may be chosen where the interval lies above zero, the effect above the bar and the
    damage not above its bound; the chosen one is ringed, if one was chosen.

    Args:
        measured: An evaluation that measured strengths, or its ``.strength``.
        ax: Where to draw: its lower third is given to the damage; a new figure if not
            given.

    Returns:
        The Axes of the effect.

    Raises:
        DirectionError: The evaluation measured no strengths.
        SterError: matplotlib is not installed.
    """
    require_type(measured, (Evaluation, StrengthChoice), "measured")
    choice = measured.strength if isinstance(measured, Evaluation) else measured
    if choice is None:
        raise DirectionError(
            "this evaluation measured no strengths",
            'runtime.evaluate(pairs, vector, ster.StrengthTrial.of("-4,4")) does',
            field="strength",
        )
    ax = take_axes(ax)
    below = split_axes(ax)
    in_norms = _are_in_norms(choice.candidates)
    candidates = sorted(choice.candidates, key=lambda each: _place(each, in_norms))
    x = [_place(each, in_norms) for each in candidates]
    handles: list[Any] = [_draw_effects(ax, x, candidates)]
    handles += _draw_chance(ax, x, candidates)
    if best := choice.selected:
        at = _place(best, in_norms), best.effect.mean
        handles.append(ax.scatter(*at, label=f"chosen: {best.spelled}", **RING))
    handles += _draw_damage(below, x, candidates, choice.max_damage)
    ax.set_ylabel("effect (nats per pair)")
    below.set_ylabel("damage\n(nats per token)")
    unit = "n: a layer's mean residual norm" if in_norms else "times the vector"
    below.set_xlabel(f"strength ({unit})")
    put_legend(ax, handles=handles, title=_title(choice))
    return ax


def _title(choice: StrengthChoice) -> str:
    where = f"{plain(choice.method)} at {plain(name_layers(choice.layers))}"
    return f"{where} on {counted(choice.num_scored, 'pair')}"


def _are_in_norms(candidates: Sequence[MeasuredStrength]) -> bool:
    """Tell whether all strengths are in norms; 0 is the same in any unit."""
    words = [each.strength_word for each in candidates if each.strength]
    return bool(words) and None not in words


def _place(each: MeasuredStrength, in_norms: bool) -> float:
    """Return where a strength stands: as it is spelled, where all are in norms."""
    if in_norms and each.strength_word:
        return parse_strengths(each.strength_word)[0].value
    return each.strength


def _draw_effects(
    ax: Axes, x: Sequence[float], candidates: Sequence[MeasuredStrength]
) -> ErrorbarContainer:
    effects = [each.effect for each in candidates]
    return draw_intervals(
        ax,
        x,
        [each.mean for each in effects],
        [each.interval or (each.mean, each.mean) for each in effects],
        label="effect, 95 % interval",
        **style(0),
    )


def _draw_chance(
    ax: Axes, x: Sequence[float], candidates: Sequence[MeasuredStrength]
) -> list[Any]:
    """Draw what turned copies do, and leave room for it above and below zero alike."""
    ax.axhline(0, color=GREY, lw=0.8)
    both = [
        (at, each.controls)
        for at, each in zip(x, candidates, strict=True)
        if each.controls is not None
    ]
    if not both:
        return []
    reached = [controls.reached_by(MAX_CHANCE) for _, controls in both]
    bars = ax.vlines(
        [at for at, _ in both],
        [-each for each in reached],
        reached,
        color=GREY,
        alpha=0.25,
        lw=9,
        label=f"above: 1 random direction in {1 / MAX_CHANCE:.0f}",
    )
    count = len(both[0][1].effects)
    dots = ax.plot(
        [at for at, controls in both for _ in controls.effects],
        [effect for _, controls in both for effect in controls.effects],
        color=GREY,
        marker=".",
        markersize=4,
        linestyle="none",
        label=f"{counted(count, 'random direction')}",
    )
    drawn = [abs(end) for each in candidates for end in each.effect.interval or ()]
    drawn += [abs(each.effect.mean) for each in candidates]
    most = max(*drawn, *(controls.largest for _, controls in both))
    # From one or two copies little is known, and chance may reach anything.
    limit = _ROOM * max(most, min(max(reached), _MOST_CHANCE * most))
    if limit > 0:
        ax.set_ylim(-limit, limit)
    return [bars, *dots]


def _draw_damage(
    ax: Axes,
    x: Sequence[float],
    candidates: Sequence[MeasuredStrength],
    max_damage: float,
) -> list[Any]:
    damage = [each.damage for each in candidates]
    look = style(1)
    handles = ax.plot(x, damage, label="damage of neutral answers", **look)
    if math.isfinite(max_damage):
        label = f"at most {max_damage:g}"
        handles.append(ax.axhline(max_damage, color=look["color"], ls=":", label=label))
    ax.axhline(0, color=GREY, lw=0.8)
    return handles
