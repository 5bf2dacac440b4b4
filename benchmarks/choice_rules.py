"""How well directions steer that were chosen by this rule or that: the tables.

``python -m benchmarks.choice_rules`` reads what ``benchmarks.directions`` has written,
and prints Markdown: what ``optimize`` chose of each set and its effect on pairs that
neither fit nor rule has seen; and for each rule the share of the best caa layer's
effect (in hindsight, on those pairs) that its choice reaches.

The *effect* is half of (shift at + the strength minus shift at −), in nats per pair.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.directions import OUTPUT
from ster.vectors.effects import Effect

Report = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured on one set.

    Args:
        name: The set.
        chosen: What ``optimize`` chose and reported, by ``effect`` and ``accuracy``.
        effects: On the pairs for the verdict, by "METHOD LAYER".
        random: The mean effects of random directions, by layer.
    """

    name: str
    chosen: Mapping[str, Report]
    effects: Mapping[str, Sequence[float]]
    random: Mapping[str, Sequence[float]]

    @classmethod
    def read(cls, path: Path) -> Measured:
        """Read what was written of a set."""
        return cls(name=path.stem, **json.loads(path.read_text()))

    def verdict(self, method: str, layer: int) -> Effect:
        """Return the effect of a direction on pairs that nobody has seen."""
        return Effect.of(np.array(self.effects[f"{method} {layer}"]))

    @property
    def caa_layers(self) -> list[int]:
        """The layers that were measured."""
        split = [each.split(" ") for each in self.effects]
        return [int(layer) for method, layer in split if method == "caa"]

    @property
    def best_layer(self) -> int:
        """The caa layer with the largest effect, in hindsight."""
        return max(self.caa_layers, key=lambda layer: self.verdict("caa", layer).mean)

    @property
    def by_accuracy(self) -> Effect:
        """The effect of what was chosen by accuracy."""
        return self.verdict("accuracy", self.chosen["accuracy"]["layer"])

    @property
    def by_effect(self) -> Effect:
        """The effect of what was chosen by effect."""
        chosen = self.chosen["effect"]
        return self.verdict(chosen["method"], chosen["layer"])

    def share(self, effect: Effect) -> float:
        """Return the share of the best layer's effect."""
        return effect.mean / self.verdict("caa", self.best_layer).mean

    def choose(self, rule: Rule) -> Effect:
        """Return the effect of the candidate that another rule would have chosen."""
        report = self.chosen["effect"]["report"]
        steered = [each for each in report["candidates"] if each["effect"] is not None]
        within = [e for e in steered if e["damage"] <= report["damage_bound"]]
        best = max(within or steered, key=rule)
        return self.verdict(best["method"], best["layer"])

    def luckiest(self, layer: int) -> float:
        """Return the largest effect of a random direction, whichever way it points."""
        return max(map(abs, self.random[str(layer)]))


Rule = Callable[[Report], tuple[float, ...]]
RULES: Mapping[str, Rule] = {
    "effect": lambda each: (each["effect"],),
    "effect / error": lambda each: (each["effect"] / each["effect_standard_error"],),
    "lower bound of the effect": lambda each: (each["effect_interval"][0],),
    "accuracy on folds, then margin": lambda each: (
        each["fold_accuracy"],
        each["fold_margin"],
    ),
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, default=OUTPUT)
    options = parser.parse_args()
    sets = [Measured.read(path) for path in sorted(options.input.glob("*.json"))]
    print_sets(sets)
    print_rules(sets)


def print_sets(sets: Sequence[Measured]) -> None:
    """Print what was chosen of each set, and what it is worth."""
    print(
        "| set | by accuracy (accuracy, tied) | its effect | best caa layer "
        "| luckiest random there | by effect | its effect | luckiest random there "
        "| doubts | seconds |"
    )
    print(f"|{'---|' * 10}")
    for each in sets:
        old, new = each.chosen["accuracy"], each.chosen["effect"]
        ranked = old["report"]["candidates"]
        best = max(one["holdout_accuracy"] for one in ranked)
        tied = sum(one["holdout_accuracy"] == best for one in ranked)
        cells = [
            each.name,
            f"{old['method']} {old['layer']} ({best:.2f}, {tied} of {len(ranked)})",
            spell(each.by_accuracy),
            f"{each.best_layer}: {spell(each.verdict('caa', each.best_layer))}",
            f"{each.luckiest(each.best_layer):.2f}",
            f"{new['method']} {new['layer']}",
            spell(each.by_effect),
            f"{each.luckiest(new['layer']):.2f}",
            str(len(new["report"]["doubts"])),
            f"{new['seconds']:.0f}",
        ]
        print(f"| {' | '.join(cells)} |")


def print_rules(sets: Sequence[Measured]) -> None:
    """Print which share of the best layer's effect every rule reaches."""
    print(f"\n| rule | mean | worst | {' | '.join(each.name for each in sets)} |")
    print(f"|---|---|---|{'---|' * len(sets)}")
    print_rule("`--by accuracy`", [each.share(each.by_accuracy) for each in sets])
    print_rule("`--by effect`", [each.share(each.by_effect) for each in sets])
    for name, rule in RULES.items():
        print_rule(name, [each.share(each.choose(rule)) for each in sets])
    fixed = {
        layer: [each.share(each.verdict("caa", layer)) for each in sets]
        for layer in sets[0].caa_layers
    }
    layer = max(fixed, key=lambda at: np.mean(fixed[at]))
    print_rule(f"caa at layer {layer}, in hindsight", fixed[layer])


def print_rule(title: str, shares: Sequence[float]) -> None:
    """Print one line."""
    cells = " | ".join(f"{each:.0%}" for each in shares)
    print(f"| {title} | {np.mean(shares):.0%} | {min(shares):.0%} | {cells} |")


def spell(effect: Effect) -> str:
    """Write a mean with its standard error."""
    error = math.nan if effect.standard_error is None else effect.standard_error
    return f"{effect.mean:+.2f} ± {error:.2f}"


if __name__ == "__main__":
    main()
