"""How many pairs a direction needs: fitted on more and more, measured on others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ster.errors import DirectionError, UsageError, require_whole_number
from ster.html import to_html
from ster.text import counted
from ster.vectors.directions import fit_directions
from ster.vectors.report_cards import curve_card, describe_curve
from ster.vectors.selection import Candidate, PairRows, score_candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """A direction that was fitted on some pairs, and measured on the held-out ones.

    Args:
        size: How many pairs it was fitted on.
        score: Its layer, accuracy, margin, effect size and the accuracy of chance.
    """

    size: int
    score: Candidate

    @property
    def layer(self) -> int:
        """The block whose output it reads."""
        return self.score.layer

    @property
    def accuracy(self) -> float:
        """The share of held-out pairs that it orders."""
        return self.score.accuracy

    @property
    def document(self) -> dict[str, object]:
        """What the report says of it."""
        return {
            "holdout_accuracy": self.score.accuracy,
            "holdout_effect_size": self.score.effect_size,
            "holdout_margin": self.score.margin,
            "layer": self.layer,
            "size": self.size,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Enough:
    """With how few pairs a layer does as well as it does with any number.

    Args:
        layer: The layer.
        best_accuracy: The best accuracy of any size.
        smallest_size: The smallest size that reaches it.
    """

    layer: int
    best_accuracy: float
    smallest_size: int

    @property
    def document(self) -> dict[str, object]:
        """What the report says of it."""
        return {
            "best_accuracy": self.best_accuracy,
            "layer": self.layer,
            "smallest_size": self.smallest_size,
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LearningCurve:
    """How directions of one method do on held-out pairs, by the pairs they have.

    Args:
        trait_name: What they point towards.
        method: How they were fitted.
        chat_template: How the pairs were encoded.
        points: Layer by layer, sizes in the order in which they were given.
        fraction: The share of pairs that was asked to be held out.
        num_fit: Pairs that were there to fit on.
        num_holdout: Pairs that all were measured on.
    """

    trait_name: str
    method: str
    chat_template: str
    points: tuple[CurvePoint, ...]
    fraction: float
    num_fit: int
    num_holdout: int

    def __repr__(self) -> str:
        """Show the best layer, not all points."""
        return describe_curve(self)

    def _repr_html_(self) -> str:
        return to_html(curve_card(self))

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers, ascending."""
        return tuple(dict.fromkeys(each.layer for each in self.points))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes, ascending."""
        return tuple(sorted({each.size for each in self.points}))

    def at_layer(self, layer: int) -> list[CurvePoint]:
        """Take the points of one layer, smallest size first."""
        points = [each for each in self.points if each.layer == layer]
        return sorted(points, key=lambda each: each.size)

    @property
    def enough(self) -> tuple[Enough, ...]:
        """Of each layer, the smallest size that reaches its best accuracy."""
        found: list[Enough] = []
        for layer in self.layers:
            best = max(self.at_layer(layer), key=lambda each: each.accuracy)
            found.append(
                Enough(
                    layer=layer,
                    best_accuracy=best.accuracy,
                    smallest_size=best.size,  # the first of equal ones
                )
            )
        return tuple(found)

    @property
    def best(self) -> Enough:
        """The most accurate layer; of equal ones the best over all sizes."""
        (layer,) = self.most_accurate(1)
        return next(each for each in self.enough if each.layer == layer)

    def most_accurate(self, number: int) -> list[int]:
        """Return so many of the most accurate layers, ascending."""
        ranked = sorted(self.enough, key=self._rank)
        return sorted(each.layer for each in ranked[:number])

    def _rank(self, each: Enough) -> tuple[float, float]:
        """Let a layer that is good with one lucky size stand behind a steady one."""
        total = sum(point.accuracy for point in self.at_layer(each.layer))
        return -each.best_accuracy, -total

    @property
    def document(self) -> dict[str, object]:
        """The report."""
        return {
            "chat_template": self.chat_template,
            "enough": [each.document for each in self.enough],
            "holdout": {
                "fit_pairs": self.num_fit,
                "fraction": self.fraction,
                "holdout_pairs": self.num_holdout,
            },
            "method": self.method,
            "points": [each.document for each in self.points],
            "trait_name": self.trait_name,
        }


def check_sizes(sizes: object) -> tuple[int, ...]:
    """Take numbers of pairs to fit on.

    Raises:
        UsageError: There is none, or one is no whole number or below 1.
    """
    if isinstance(sizes, str) or not isinstance(sizes, Iterable):
        sentence = "sizes must be whole numbers, such as [10, 20, 40]"
        raise UsageError(sentence, field="sizes", found=sizes)
    taken = tuple(require_whole_number(each, "a size") for each in sizes)
    if not taken:
        raise UsageError("there is no size to fit on", field="sizes")
    if min(taken) < 1:
        sentence = f"a size must be at least 1 pair, not {min(taken)}"
        raise UsageError(sentence, field="sizes", found=min(taken))
    return tuple(dict.fromkeys(taken))


def check_sizes_fit(sizes: Sequence[int], num_fit: int, num_held: int) -> None:
    """Refuse sizes of more pairs than there are.

    Raises:
        DirectionError: There are fewer pairs to fit on.
    """
    if max(sizes) > num_fit:
        raise DirectionError(
            f"size {max(sizes)} is more than the {counted(num_fit, 'pair')} that may "
            "be fitted on",
            f"{num_held} of {num_fit + num_held} pairs are held out",
            field="sizes",
            found=max(sizes),
            expected=num_fit,
        )


def measure_sizes(
    method: str,
    layers: Sequence[int],
    sizes: Sequence[int],
    fitted: PairRows,
    held: PairRows,
) -> tuple[CurvePoint, ...]:
    """Fit on the first pairs, so many as each size says, and measure on others.

    Args:
        method: How directions are fitted.
        layers: The layer of each column of the rows.
        sizes: How many pairs, each at least 1 and at most those to fit on.
        fitted: The pairs to fit on.
        held: The pairs to measure on.

    Returns:
        Layer by layer, sizes in the order in which they are given.

    Raises:
        DirectionError: Nothing can be fitted to so many pairs.
    """
    by_size = [[*_score(method, layers, size, fitted, held)] for size in sizes]
    return tuple(each for at_layer in zip(*by_size, strict=True) for each in at_layer)


def _score(
    method: str, layers: Sequence[int], size: int, fitted: PairRows, held: PairRows
) -> Iterator[CurvePoint]:
    some = fitted[:size]
    try:
        directions = fit_directions(method, some.positive, some.negative)
    except DirectionError as error:
        causes = (*error.causes, f"it was fitted on the first {counted(size, 'pair')}")
        raise DirectionError(error.sentence, *causes, found=size) from error
    for score in score_candidates(method, layers, directions, held):
        yield CurvePoint(size=size, score=score)
