"""The results of ``optimize`` and ``evaluate``, and their reports.

Beside the old keys stand new ones, which a reader of old reports can ignore: how sure
an accuracy is, and what random directions reach on the same pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ster.documents.float32 import shortest
from ster.html import to_html
from ster.vectors import metrics
from ster.vectors.cards import (
    describe_evaluation,
    describe_selection,
    evaluation_card,
    selection_card,
)
from ster.vectors.confounds import Confound
from ster.vectors.measured import StrengthChoice
from ster.vectors.metrics import RANDOM_DIRECTIONS, accuracy_interval
from ster.vectors.steering import SteeringVector

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PairRows:
    """The activations of both sides of pairs.

    Args:
        positive: Those of the positive sides, (num_pairs, num_layers, hidden_size).
        negative: Those of the negative sides, of the same shape.
    """

    positive: F32
    negative: F32

    def __getitem__(self, pairs: slice) -> PairRows:
        """Take some of the pairs."""
        return PairRows(positive=self.positive[pairs], negative=self.negative[pairs])

    def __len__(self) -> int:
        """Count the pairs."""
        return len(self.positive)

    def take(self, pairs: Sequence[int]) -> PairRows:
        """Take some of the pairs, counted from 0."""
        numbers = list(pairs)
        return PairRows(
            positive=self.positive[numbers], negative=self.negative[numbers]
        )

    def at(self, index: int) -> PairRows:
        """Take one of the layers that were read."""
        layer = slice(index, index + 1)
        return PairRows(
            positive=self.positive[:, layer], negative=self.negative[:, layer]
        )

    @property
    def mean_norms(self) -> F64:
        """The mean length of each layer's rows, of both sides, (num_layers,)."""
        both = metrics.mean_norms(self.positive) + metrics.mean_norms(self.negative)
        return both / 2

    @cached_property
    def random_margin(self) -> F64:
        """What margins of random directions of length 1 stay below, (num_layers,)."""
        return metrics.random_margins(self.positive, self.negative)

    @cached_property
    def random(self) -> F64:
        """The accuracy of random directions, (num_directions, num_layers)."""
        return metrics.random_accuracies(self.positive, self.negative)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The accuracy of random directions on the same pairs.

    Args:
        mean: Over the directions.
        percentile_95: What one direction in twenty exceeds.
    """

    mean: float
    percentile_95: float

    @property
    def document(self) -> dict[str, object]:
        """What a report says of it."""
        return {"mean": self.mean, "percentile_95": self.percentile_95}


def summarize_baseline(accuracies: F64) -> Baseline:
    """Summarise the accuracies of random directions."""
    return Baseline(
        mean=float(accuracies.mean()),
        percentile_95=float(np.percentile(accuracies, 95)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A method at a layer, fitted on some pairs and measured on the held-out ones.

    Args:
        layer: The block whose output it reads.
        method: caa, pca or logistic.
        accuracy: The share of held-out pairs that it orders.
        margin: The mean of positive less negative score.
        effect_size: The distance of the sides in units of their spread, or None.
        interval: The 95 % confidence interval of the accuracy.
        random: What random directions reach at this layer.
        selected: This one is the best.
        margin_interval: The 95 % confidence interval of the margin; None for one pair.
        random_margin: What 95 % of random directions of the same length stay below,
            whichever way they point.
    """

    layer: int
    method: str
    accuracy: float
    margin: float
    effect_size: float | None
    interval: tuple[float, float]
    random: Baseline
    selected: bool = False
    margin_interval: tuple[float, float] | None = None
    random_margin: float | None = None

    @property
    def document(self) -> dict[str, object]:
        """What the report says of it."""
        return {
            "holdout_accuracy": self.accuracy,
            "holdout_accuracy_interval": list(self.interval),
            "holdout_effect_size": self.effect_size,
            "holdout_margin": self.margin,
            "layer": self.layer,
            "method": self.method,
            "random_accuracy": self.random.document,
            "selected": self.selected,
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Selection:
    """The candidates of ``optimize`` and the vector of the best one.

    Args:
        vector: The best candidate, fitted again on all pairs.
        candidates: By layer, then caa, pca, logistic.
        fraction: The share of pairs that was asked to be held out.
        num_fit: Pairs that the candidates were fitted on.
        num_holdout: Pairs that they were ranked on.
        random_best: What random directions reach at their best layer. The best of many
            layers looks better than it is; this shows by how much.
        confounds: Trivial features of the sides that order the held-out pairs at least
            as well as the best candidate.
    """

    vector: SteeringVector
    candidates: tuple[Candidate, ...]
    fraction: float
    num_fit: int
    num_holdout: int
    random_best: Baseline
    confounds: tuple[Confound, ...] = ()

    def __repr__(self) -> str:
        """Show the chosen candidate, not all of them."""
        return describe_selection(self)

    def _repr_html_(self) -> str:
        return to_html(selection_card(self))

    @property
    def best(self) -> Candidate:
        """The chosen candidate."""
        return next(each for each in self.candidates if each.selected)

    @property
    def document(self) -> dict[str, object]:
        """What the report says of it."""
        return {
            "candidates": [each.document for each in self.candidates],
            "confounds": [each.document for each in self.confounds],
            "holdout": {
                "fit_pairs": self.num_fit,
                "fraction": self.fraction,
                "holdout_pairs": self.num_holdout,
            },
            "random_best_layer": self.random_best.document
            | {"directions": RANDOM_DIRECTIONS},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerScore:
    """How one layer of a vector orders pairs.

    Args:
        layer: The block whose output was read.
        accuracy: The share of pairs that it orders.
        margin: The mean of positive less negative score.
        interval: The 95 % confidence interval of the accuracy.
        random: What random directions reach at this layer.
        residual_norm: The mean length of the residual stream there.
        margin_interval: As for a candidate.
        random_margin: As for a candidate.
    """

    layer: int
    accuracy: float
    margin: float
    interval: tuple[float, float]
    random: Baseline
    residual_norm: float
    margin_interval: tuple[float, float] | None = None
    random_margin: float | None = None

    @property
    def document(self) -> dict[str, object]:
        """What the report says of it."""
        return {
            "accuracy": self.accuracy,
            "accuracy_interval": list(self.interval),
            "layer": self.layer,
            "margin": self.margin,
            "random_accuracy": self.random.document,
            "residual_norm": self.residual_norm,
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Evaluation:
    """How a vector orders pairs, layer by layer.

    Args:
        vector: What was measured.
        chat_template: How the pairs were encoded.
        num_pairs: How many there were.
        layers: One score for each layer of the vector.
        strength: The measured strengths, where some were asked for.
        confounds: Trivial features of the sides that order the pairs at least as well
            as the best layer.
    """

    vector: SteeringVector
    chat_template: str
    num_pairs: int
    layers: tuple[LayerScore, ...]
    strength: StrengthChoice | None = None
    confounds: tuple[Confound, ...] = ()

    def __repr__(self) -> str:
        """Show the best layer, not all of them."""
        return describe_evaluation(self)

    def _repr_html_(self) -> str:
        return to_html(evaluation_card(self))

    @property
    def document(self) -> dict[str, object]:
        """The report."""
        report: dict[str, object] = {
            "chat_template": self.chat_template,
            "confounds": [each.document for each in self.confounds],
            "layers": [each.document for each in self.layers],
            "method": self.vector.method,
            "model": self.vector.model,
            "pair_count": self.num_pairs,
            "trait_name": self.vector.trait_name,
        }
        if self.strength is not None:
            report["strength"] = self.strength.document
        return report


def score_candidates(
    method: str,
    layers: Sequence[int],
    directions: F32,
    held: PairRows,
) -> list[Candidate]:
    """Measure one method's directions on held-out pairs, layer by layer.

    Args:
        method: How they were fitted.
        layers: The layer of each direction.
        directions: (num_layers, hidden_size).
        held: The held-out pairs.

    Raises:
        DirectionError: A margin is not finite.
    """
    upper = metrics.score_rows(held.positive, directions)
    lower = metrics.score_rows(held.negative, directions)
    shares = metrics.accuracy(upper - lower)
    margins = metrics.mean_margins(upper - lower, layers)
    chance = held.random_margin * np.linalg.norm(directions, axis=1)
    return [
        Candidate(
            layer=layer,
            method=method,
            accuracy=shortest(shares[index]),
            margin=margins[index],
            effect_size=metrics.effect_size(upper[:, index], lower[:, index]),
            interval=accuracy_interval(shares[index], len(upper)),
            random=summarize_baseline(held.random[:, index]),
            margin_interval=metrics.margin_interval(upper[:, index] - lower[:, index]),
            random_margin=float(chance[index]),
        )
        for index, layer in enumerate(layers)
    ]


def score_layers(vector: SteeringVector, rows: PairRows) -> tuple[LayerScore, ...]:
    """Measure each layer of a vector on rows of its own layers."""
    candidates = score_candidates(vector.method, vector.layers, vector.array, rows)
    return tuple(
        LayerScore(
            layer=each.layer,
            accuracy=each.accuracy,
            margin=each.margin,
            interval=each.interval,
            random=each.random,
            residual_norm=float(norm),
            margin_interval=each.margin_interval,
            random_margin=each.random_margin,
        )
        for each, norm in zip(candidates, rows.mean_norms, strict=True)
    )
