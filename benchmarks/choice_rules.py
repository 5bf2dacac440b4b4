"""How well directions steer that were chosen by this rule or that: the verdict.

``python -m benchmarks.choice_rules`` reads what ``benchmarks.directions`` has written,
and prints Markdown: for each set the effect on the third part of its pairs, which
neither fit nor rule has seen; and for each rule the share of the best caa layer's
effect (in hindsight, on that part) that its choice reaches.

The *effect* is half of (shift at + the strength minus shift at −), in nats per pair.
*Damage* is what log p per token of neutral answers loses, at the worse of both signs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.directions import OUTPUT, PART, RANDOM_LAYERS

F64 = NDArray[np.float64]
NUM_DRAWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One method and layer, at one strength.

    Args:
        method: What fitted it.
        layer: Where it is added.
        chosen_on: Effects on the pairs to choose on, each by the other half's fit.
        judged_on: Effects on the third part, fitted on both halves.
        damage: Nats per token, at the worse sign.
    """

    method: str
    layer: int
    chosen_on: F64
    judged_on: F64
    damage: float

    @property
    def effect(self) -> float:
        """Return the mean effect on the pairs to choose on."""
        return float(self.chosen_on.mean())

    @property
    def error(self) -> float:
        """Return its standard error."""
        return standard_error(self.chosen_on)

    @property
    def verdict(self) -> float:
        """Return the mean effect on pairs that nobody has seen."""
        return float(self.judged_on.mean())


Rule = Callable[[Candidate], float]
RULES: Mapping[str, Rule] = {
    "effect": lambda each: each.effect,
    "effect / error": lambda each: each.effect / each.error,
    "effect − 1 error": lambda each: each.effect - each.error,
    "effect − 2 errors": lambda each: each.effect - 2 * each.error,
}
BOUNDS = (np.inf, 1.0, 0.5, 0.25)


def main() -> None:
    """Print the tables of each strength."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, default=OUTPUT)
    parser.add_argument("--methods", default="caa")
    parser.add_argument("--strengths", default="0.1,0.2")
    options = parser.parse_args()
    paths = sorted(options.input.glob("*.npz"))
    found = {path.stem: dict(np.load(path)) for path in paths}
    for strength in options.strengths.split(","):
        print(f"\n## {strength}n\n")
        sets = {
            name: read_candidates(each, strength, options.methods.split(","))
            for name, each in found.items()
        }
        print_sets(found, sets, strength)
        print_rules(found, sets, strength)


def read_candidates(
    found: Mapping[str, F64], strength: str, methods: Sequence[str]
) -> list[Candidate]:
    """Take the candidates of some methods at a strength."""
    candidates = []
    for key, shifts in found.items():
        method, at, *rest = key.split(" ")
        if method not in methods or at != strength or len(rest) != 1:
            continue
        effects = odd_part(shifts)
        damage = -float(found[f"{key} neutral"].mean(axis=1).min())
        candidates.append(
            Candidate(
                method=method,
                layer=int(rest[0]),
                chosen_on=effects[: 2 * PART],
                judged_on=effects[2 * PART :],
                damage=damage,
            )
        )
    return sorted(candidates, key=lambda each: (each.layer, each.method))


def print_sets(
    found: Mapping[str, Mapping[str, F64]],
    sets: Mapping[str, list[Candidate]],
    strength: str,
) -> None:
    """Print what was found of each set."""
    print(
        "| set | by accuracy | its effect | best caa layer | by effect | its effect "
        "| luckiest of random directions |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, candidates in sets.items():
        each = found[name]
        by_accuracy = odd_part(each[f"optimize {strength}"])
        best = best_caa(candidates)
        chosen = max(candidates, key=RULES["effect"])
        print(
            f"| {name} | {each['optimize method']} {each['optimize layer']} "
            f"| {spell(by_accuracy)} | {best.layer}: {spell(best.judged_on)} "
            f"| {chosen.method} {chosen.layer} | {spell(chosen.judged_on)} "
            f"| {spell_luckiest(each) if strength == '0.1' else '–'} |"
        )


def print_rules(
    found: Mapping[str, Mapping[str, F64]],
    sets: Mapping[str, list[Candidate]],
    strength: str,
) -> None:
    """Print which share of the best layer's effect every rule reaches."""
    print(f"\n| rule | mean | worst | drawn again | {' | '.join(sets)} |")
    print(f"|---|---|---|---|{'---|' * len(sets)}")
    by_accuracy = {
        name: float(odd_part(found[name][f"optimize {strength}"]).mean())
        / best_caa(each).verdict
        for name, each in sets.items()
    }
    print_rule("accuracy", by_accuracy, None)
    layers = {each.layer for candidates in sets.values() for each in candidates}
    fixed = {layer: {n: share_at(each, layer) for n, each in sets.items()}
             for layer in layers}  # fmt: skip
    layer = max(fixed, key=lambda each: np.mean([*fixed[each].values()]))
    print_rule(f"layer {layer}, in hindsight", fixed[layer], None)
    for bound in BOUNDS:
        for rule_name, rule in RULES.items():
            title = rule_name + ("" if bound == np.inf else f", damage ≤ {bound}")
            shares = {n: share_of(each, rule, bound) for n, each in sets.items()}
            drawn = np.mean([share_drawn(each, rule, bound) for each in sets.values()])
            print_rule(title, shares, float(drawn))


def print_rule(title: str, shares: Mapping[str, float], drawn: float | None) -> None:
    """Print one line."""
    values = [*shares.values()]
    again = "–" if drawn is None else f"{drawn:.0%}"
    cells = " | ".join(f"{each:.0%}" for each in values)
    print(
        f"| {title} | {np.mean(values):.0%} | {min(values):.0%} | {again} | {cells} |"
    )


def choose(candidates: Sequence[Candidate], rule: Rule, bound: float) -> Candidate:
    """Choose by a rule within a bound of damage; where none is, the least damage."""
    within = [each for each in candidates if each.damage <= bound]
    if not within:
        return min(candidates, key=lambda each: each.damage)
    return max(within, key=rule)


def share_of(candidates: Sequence[Candidate], rule: Rule, bound: float) -> float:
    """Return the share of the best layer's effect that a choice reaches."""
    return choose(candidates, rule, bound).verdict / best_caa(candidates).verdict


def share_drawn(candidates: Sequence[Candidate], rule: Rule, bound: float) -> float:
    """Return the mean share where pairs to choose on are drawn with replacement."""
    rng, shares = np.random.default_rng(0), []
    best = best_caa(candidates).verdict
    for _ in range(NUM_DRAWN):
        at = rng.integers(0, 2 * PART, 2 * PART)
        drawn = [
            Candidate(
                method=each.method,
                layer=each.layer,
                chosen_on=each.chosen_on[at],
                judged_on=each.judged_on,
                damage=each.damage,
            )
            for each in candidates
        ]
        shares.append(choose(drawn, rule, bound).verdict / best)
    return float(np.mean(shares))


def share_at(candidates: Sequence[Candidate], layer: int) -> float:
    """Return the share that caa reaches at one layer."""
    at = next(
        (e for e in candidates if (e.method, e.layer) == ("caa", layer)), candidates[0]
    )
    return at.verdict / best_caa(candidates).verdict


def best_caa(candidates: Sequence[Candidate]) -> Candidate:
    """Return the caa layer of the largest effect on the third part, in hindsight."""
    caa = [each for each in candidates if each.method == "caa"]
    return max(caa, key=lambda each: each.verdict)


def odd_part(shifts: F64) -> F64:
    """Return the effects of shifts at both signs, which come first."""
    effects: F64 = (shifts[..., 0, :] - shifts[..., 1, :]) / 2
    return effects


def standard_error(values: F64) -> float:
    """Return the standard error of a mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def spell(effects: F64) -> str:
    """Write a mean with its standard error."""
    return f"{effects.mean():+.2f} ± {standard_error(effects):.2f}"


def spell_luckiest(found: Mapping[str, F64]) -> str:
    """Write the largest effect of random directions, and its layer."""
    effects = {
        layer: float(np.abs(odd_part(found[f"random 0.1 {layer}"]).mean(-1)).max())
        for layer in RANDOM_LAYERS
        if f"random 0.1 {layer}" in found
    }
    layer = max(effects, key=effects.__getitem__)
    return f"{layer}: {effects[layer]:.2f}"


if __name__ == "__main__":
    main()
