"""Values as a run makes them, small enough to know every number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ster.documents.activations.read_tokens import NO_TOKEN, ReadTokens
from ster.documents.activations.value import Activations
from ster.vectors.comparison import Comparison
from ster.vectors.controls import ControlEffects
from ster.vectors.effect_selection import EffectCandidate, EffectSelection, Reading
from ster.vectors.effects import Effect
from ster.vectors.learning_curves import CurvePoint, LearningCurve
from ster.vectors.measured import MeasuredStrength, StrengthChoice
from ster.vectors.projection import Projection
from ster.vectors.selection import (
    Baseline,
    Candidate,
    Evaluation,
    LayerScore,
    Selection,
)
from ster.vectors.side_rises import SideLengths, SideRises
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import Strength


def activations(
    num_rows: int = 4, layers: tuple[int, ...] = (1, 3), **parts: Any
) -> Activations:
    """Make activations of width 6, one row for each prompt."""
    shape = num_rows, len(layers), 6
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    whole: dict[str, Any] = {
        "array": array,
        "layers": layers,
        "prompts": tuple(f"prompt {row}" for row in range(num_rows)),
        "model": "toy",
        "hidden_size": 6,
    }
    return Activations(**(whole | parts))


def read_tokens() -> ReadTokens:
    """Say that of two prompts four tokens and a mean were read."""
    return ReadTokens(
        prompt_index=np.array([0, 0, 0, 1, 1]),
        position=np.array([0, 1, 2, 0, NO_TOKEN]),
        token_id=np.array([1, 7, 8, 1, NO_TOKEN]),
        text=("<s>", " <b>sea</b>", "\n", "<s>", "the whole"),
        in_template=np.array([True, False, False, True, False]),
        num_tokens=np.array([3, 4]),
        num_bos=np.array([1, 1]),
    )


def all_tokens(**parts: Any) -> Activations:
    """Make activations at the tokens of ``read_tokens``."""
    whole: dict[str, Any] = {
        "prompts": ("<b>sea</b>\n", "two"),
        "tokens": read_tokens(),
        "read": "all",
    }
    return activations(5, **(whole | parts))


def vector(layers: tuple[int, ...] = (1, 3), **parts: Any) -> SteeringVector:
    """Make a vector whose directions are not of length 1."""
    shape = len(layers), 6
    whole: dict[str, Any] = {
        "layers": layers,
        "array": np.random.default_rng(1).standard_normal(shape).astype(np.float32),
        "model": "toy",
        "trait_name": "calm",
        "method": "caa",
    }
    return SteeringVector(**(whole | parts))


def evaluation(*, measured: bool = False, num_layers: int = 2) -> Evaluation:
    """Make an evaluation of some layers, the second of which is the best."""
    scores = tuple(
        LayerScore(
            layer=index,
            accuracy=0.75 if index == 1 else 0.5,
            margin=1.0 + index,
            interval=(0.25, 0.875),
            random=Baseline(mean=0.5, percentile_95=0.625),
            residual_norm=2.0,
            margin_interval=(0.5, 1.5 + 2 * index),
            random_margin=0.25,
        )
        for index in range(num_layers)
    )
    return Evaluation(
        vector=vector(tuple(range(num_layers))),
        chat_template="absent",
        num_pairs=8,
        layers=scores,
        strength=strength_choice() if measured else None,
    )


def measured_strength(strength: float, effect: float = 1.0, **parts: Any) -> Any:
    """Make a strength whose effect is sure within half a nat, beside two copies."""
    whole: dict[str, Any] = {
        "strength": strength,
        "ordered": 0.5,
        "mean_shift": 0.5,
        "effect": Effect(
            mean=effect, standard_error=0.25, interval=(effect - 0.5, effect + 0.5)
        ),
        "rises": SideRises(
            positive=0.25,
            negative=-0.25,
            positive_per_token=0.05,
            negative_per_token=-0.05,
            effect_per_token=0.1,
        ),
        "damage": 0.125,
        "controls": ControlEffects(effects=(0.01, -0.01), own=effect, num_pairs=8),
    }
    return MeasuredStrength(**(whole | parts))


def strength_choice(*, chosen: bool = True) -> StrengthChoice:
    """Make three measured strengths, not in order; none may do too much damage."""
    damage = 0.125 if chosen else 0.75
    return StrengthChoice(
        candidates=(
            measured_strength(
                4.0, ordered=0.75, mean_shift=1.5, selected=chosen, damage=damage
            ),
            measured_strength(-2.0, ordered=0.25, mean_shift=-0.5, effect=-0.5),
            measured_strength(2.0, ordered=0.5, mean_shift=0.5, effect=0.5),
        ),
        layers=(1, 3),
        method="caa",
        num_pairs=9,
        num_scored=8,
        forms={"alone": 8},
        residual_norms=(30.0, 50.0),
        lengths=SideLengths(
            positive_longer=4,
            negative_longer=4,
            num_pairs=8,
            positive_mean=5.0,
            negative_mean=5.0,
        ),
    )


def selection(num_layers: int = 2) -> Selection:
    """Make a selection of two methods, whose choice is pca at layer 1."""
    candidates = tuple(
        Candidate(
            layer=layer,
            method=method,
            accuracy=0.75 if (layer, method) == (1, "pca") else 0.5,
            margin=0.5 * layer,
            effect_size=None,
            interval=(0.25, 0.875),
            random=Baseline(mean=0.5, percentile_95=0.5 + 0.125 * layer),
            selected=(layer, method) == (1, "pca"),
            margin_interval=None,
            random_margin=0.25 * layer,
        )
        for layer in range(num_layers)
        for method in ("caa", "pca")
    )
    return Selection(
        vector=vector((1,), method="pca"),
        candidates=candidates,
        fraction=0.25,
        num_fit=6,
        num_holdout=2,
        random_best=Baseline(mean=0.625, percentile_95=0.875),
    )


def comparison() -> Comparison:
    """Make a comparison of two at right angles, and one that is opposite to the first.

    The second stands between the others, which are a cluster.
    """
    directions = np.array([[3, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]], np.float32)
    east = vector(array=directions, trait_name="east")
    other = vector(array=directions[::-1].copy(), trait_name="$up$")
    return east.compare(other, -east, clusters=2)


def learning_curve(num_layers: int = 2) -> LearningCurve:
    """Make a curve of three sizes, not in order; the second layer is the best."""
    point = selection().candidates[0]
    points = tuple(
        CurvePoint(
            size=size,
            score=replace(point, layer=layer, accuracy=accuracy, margin=0.5),
        )
        for layer in range(num_layers)
        for size, accuracy in zip(
            (8, 2, 4), (0.5, 1.0, 0.5) if layer == 1 else (0.5, 0.75, 0.75), strict=True
        )
    )
    return LearningCurve(
        trait_name="calm",
        method="caa",
        chat_template="absent",
        points=points,
        fraction=0.2,
        num_fit=8,
        num_holdout=4,
    )


def projection(num_components: int = 2, **parts: Any) -> Projection:
    """Make a projection of two pairs, whose places count up."""
    shape = 2, 2, 2, num_components
    whole: dict[str, Any] = {
        "vector": vector(),
        "strength": Strength(value=2.0),
        "layer": 3,
        "chat_template": "absent",
        "explained": (0.5, 0.25, 0.125)[:num_components],
        "coordinates": np.arange(np.prod(shape), dtype=np.float64).reshape(shape),
        "shift_along_direction": 1.5,
        "unsteered_distance": 2.0,
        "steered_distance": 1.0,
        "moved_toward_positive": 0.5,
    }
    return Projection(**(whole | parts))


def effect_selection() -> EffectSelection:
    """Make a choice by effect of two methods at two layers, one not steered with."""
    candidates = [
        EffectCandidate(
            layer=layer,
            method=method,
            reading=Reading(
                accuracy=0.5 + 0.25 * layer,
                interval=(0.25 + 0.25 * layer, 1.0),
                margin=1.0 + layer,
                random=Baseline(mean=0.5, percentile_95=0.75),
                random_margin=0.25,
            ),
            effect=effect,
            damage=0.125,
            selected=(layer, method) == (1, "caa"),
        )
        for layer, method, effect in (
            (0, "caa", Effect(mean=0.5, standard_error=0.25, interval=(0.0, 1.0))),
            (0, "logreg", None),
            (1, "caa", Effect(mean=2.0, standard_error=0.25, interval=(1.5, 2.5))),
            (1, "logreg", Effect(mean=1.0, standard_error=None, interval=None)),
        )
    ]
    return EffectSelection(
        vector=vector((1,)),
        candidates=tuple(candidates),
        strength="0.1n",
        num_pairs=8,
        num_scored=8,
        num_folds=2,
        seed=0,
        random_effects=(-0.5, 0.25, 0.125),
    )
