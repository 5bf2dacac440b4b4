"""The tables of directions: who is compared with whom, and on which pairs."""

from __future__ import annotations

import pytest

from benchmarks.choice_rules import RULES, Measured, print_rules, print_sets
from benchmarks.directions import NUM_CHOOSING, NUM_JUDGING, PAIRS, split


def candidate(layer: int, effect: float, error: float, damage: float):
    return {
        "layer": layer,
        "method": "caa",
        "effect": effect,
        "effect_standard_error": error,
        "effect_interval": [effect - 2 * error, effect + 2 * error],
        "damage": damage,
        "fold_accuracy": 0.9 + layer / 100,
        "fold_margin": 1.0,
    }


@pytest.fixture
def measured() -> Measured:
    """Layer 1 looks best and is second, layer 3 would be best, but damages."""
    effects = {0: [1.0, 1.0], 1: [2.0, 4.0], 2: [4.0, 4.0], 3: [9.0, 9.0]}
    candidates = [
        candidate(0, 1.0, 0.01, 0.1),
        candidate(1, 5.0, 2.0, 0.1),
        candidate(2, 3.0, 0.5, 0.1),
        candidate(3, 9.0, 0.5, 2.0),
    ]
    ranked = [{"holdout_accuracy": share} for share in (1.0, 0.5, 1.0)]
    return Measured(
        name="made",
        chosen={
            "effect": {
                "layer": 1,
                "method": "caa",
                "seconds": 7.0,
                "report": {
                    "candidates": candidates,
                    "damage_bound": 0.5,
                    "doubts": ["a doubt"],
                },
            },
            "accuracy": {
                "layer": 2,
                "method": "logistic",
                "report": {"candidates": ranked},
            },
        },
        effects={
            **{f"caa {layer}": each for layer, each in effects.items()},
            "accuracy 2": [-1.0, 0.1],
        },
        random={"1": [0.5, -0.75], "3": [0.25]},
    )


def test_a_set_is_one_line(measured, capsys):
    print_sets([measured])
    assert capsys.readouterr().out.splitlines()[-1] == (
        "| made | logistic 2 (1.00, 2 of 3) | -0.45 ± 0.55 | 3: +9.00 ± 0.00 | 0.25 "
        "| caa 1 | +3.00 ± 1.00 | 0.75 | 1 | 7 |"
    )


def test_shares_are_of_the_best_caa_layer_on_pairs_that_nobody_has_seen(
    measured, capsys
):
    print_rules([measured])
    lines = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[3:]]
    assert {line[0]: line[1] for line in lines} == {
        "| `--by accuracy`": "-5%",
        "| `--by effect`": "33%",
        "| effect": "33%",
        "| effect / error": "11%",
        "| lower bound of the effect": "44%",
        "| accuracy on folds, then margin": "44%",
        "| caa at layer 3, in hindsight": "100%",
    }


def test_no_rule_takes_what_damages_while_anything_else_is_there(measured):
    assert measured.choose(RULES["effect"]).mean == 3


def test_no_pair_for_the_verdict_was_chosen_on():
    for path in PAIRS.glob("*.json"):
        choosing, judging = map(set, split(path.stem))
        assert len(choosing) == NUM_CHOOSING
        assert len(judging) == NUM_JUDGING
        assert not choosing & judging
