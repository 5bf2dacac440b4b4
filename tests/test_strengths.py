"""Strengths as a command line and a notebook have them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ster.errors import DirectionError, UsageError
from ster.vectors.strengths import Strength
from ster.vectors.trials import StrengthTrial

ONE, TWO = Strength(value=1.0), Strength(value=2.0)
HALF = Strength(value=0.5, of_norm=True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([1, 2], (ONE, TWO)),
        ((1.0, "2"), (ONE, TWO)),
        (["1", " 0.5n "], (ONE, HALF)),
        ([ONE, 2, "0.5n"], (ONE, TWO, HALF)),
        ("1,2,0.5n", (ONE, TWO, HALF)),
        (np.array([1, 2]), (ONE, TWO)),
        (np.linspace(1, 2, 2, dtype="f4"), (ONE, TWO)),
        (np.array(2.0), (TWO,)),
        (np.float32(2), (TWO,)),
        (range(1, 3), (ONE, TWO)),
        (iter([1, 2]), (ONE, TWO)),
        (2, (TWO,)),
        (HALF, (HALF,)),
    ],
)
def test_a_trial_takes_strengths_as_they_are_at_hand(
    given: Any, expected: tuple[Strength, ...]
):
    assert StrengthTrial.of(given).strengths == expected


def test_a_trial_leaves_no_pair_out_unless_told():
    trial = StrengthTrial.of([1])
    assert (trial.batch_size, trial.max_sequence) == (None, None)


@pytest.mark.parametrize(
    "given",
    [
        ["x"],
        ["1,2"],
        [None],
        [[1, 2]],
        [True],
        None,
        {1: 2},
        {1, 2},
        b"1",
        [b"1"],
        [1j],
    ],
)
def test_what_is_no_strength_is_refused(given: Any):
    with pytest.raises(UsageError, match="strength"):
        StrengthTrial.of(given)


def test_two_dimensions_of_strengths_are_refused():
    with pytest.raises(UsageError, match=r"^a strength must be a number, not \[1 2\]$"):
        StrengthTrial.of(np.array([[1, 2]]))


@pytest.mark.parametrize(
    "given", [[math.inf], [math.nan], [-1e39], [10**5000], ["1e39"], "1e999n"]
)
def test_a_strength_that_is_not_finite_is_refused(given: Any):
    with pytest.raises(DirectionError, match="needs finite strengths") as caught:
        StrengthTrial.of(given)
    assert caught.value.field == "strengths"


@pytest.mark.parametrize("given", [[], "", (), np.array([])])
def test_no_strength_is_refused(given: Any):
    with pytest.raises(DirectionError, match="at least one strength"):
        StrengthTrial.of(given)


@pytest.mark.parametrize("name", ["batch_size", "max_sequence"])
@pytest.mark.parametrize(
    ("number", "kind"), [(0, DirectionError), (1.5, UsageError), ("8", UsageError)]
)
def test_a_size_that_is_none_is_refused_by_name(name: str, number: Any, kind: Any):
    sizes: Any = {name: number}
    with pytest.raises(kind) as caught:
        StrengthTrial.of([1], **sizes)
    assert (caught.value.field, caught.value.found) == (name, number)


def test_a_trial_made_of_bare_numbers_is_refused_with_the_way_out():
    bare: Any = (1, 2)
    with pytest.raises(UsageError, match="^a strength must be a Strength") as caught:
        StrengthTrial(strengths=bare, batch_size=1, max_sequence=1)
    assert "StrengthTrial.of" in caught.value.causes[0]
