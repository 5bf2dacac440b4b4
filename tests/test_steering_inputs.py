"""What a person may give to steer with, at strengths and without."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ster
from ster.errors import PromptError, SterError, UsageError
from ster.runs.scoring import Scorer
from ster.stream.changes import Deltas
from tests.checkpoints import make_config, text, write_checkpoint

PROMPTS = [text([3, 4]), text([5])]


@pytest.fixture
def runtime(tmp_path: Path) -> ster.Runtime:
    return ster.load(write_checkpoint(tmp_path, make_config()).directory)


def vector_of(runtime: ster.Runtime, **facts: Any) -> ster.SteeringVector:
    facts = {"model": runtime.model, "trait_name": "x", "method": "caa", **facts}
    return ster.SteeringVector(
        layers=(1,), array=np.full((1, 32), 2.0, np.float32), **facts
    )


@pytest.mark.parametrize("strengths", [None, [2.0], "1,2"])
@pytest.mark.parametrize("wrong", ["v.json", None, 3, [3], ["v.json"]])
def test_what_is_no_vector_is_refused_as_it_was_given(
    runtime: ster.Runtime, wrong: Any, strengths: Any
):
    with pytest.raises(UsageError) as refused:
        runtime.answers(PROMPTS, steer=wrong, strengths=strengths)
    assert (refused.value.field, refused.value.expected) == ("steer", "SteeringVector")
    assert refused.value.found == (wrong[0] if isinstance(wrong, list) else wrong)


def test_a_vector_of_another_space_is_warned_of_once_however_many_strengths(
    runtime: ster.Runtime,
):
    vector = vector_of(runtime, precision="f16")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runtime.answers(PROMPTS, steer=vector, strengths=[-1, 1, 2])
    assert [each.category for each in caught] == [ster.SterWarning]


def test_answers_are_refused_before_a_weight_is_opened(runtime: ster.Runtime):
    file = Path(runtime.model) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    vector, long = vector_of(runtime), text([5] * 600)
    strange = vector_of(runtime, model="another")
    for prompts, steer, strengths, kind in (
        ([*PROMPTS, long], vector, None, PromptError),
        ([*PROMPTS, " "], vector, None, PromptError),
        (PROMPTS, strange, [1], SterError),
        (PROMPTS, vector, [1e39], SterError),
        (PROMPTS, vector, [1, 1e30], SterError),
    ):
        with pytest.raises(kind) as refused:
            runtime.answers(prompts, steer=steer, strengths=strengths)
        assert not isinstance(refused.value, ster.errors.WeightsError)
    with pytest.raises(ster.errors.WeightsError):
        next(runtime.answers(PROMPTS))


@pytest.mark.filterwarnings("ignore:no strength is chosen")
def test_equal_strengths_and_zero_are_measured_once(
    runtime: ster.Runtime, monkeypatch: pytest.MonkeyPatch
):
    asked: list[int] = []
    score_all = Scorer.score_all

    def scored(self: Scorer, steerings: Sequence[Deltas], *words: Any) -> Any:
        asked.append(len(steerings))
        return score_all(self, steerings, *words)

    monkeypatch.setattr(Scorer, "score_all", scored)
    pairs = ster.PairSet.of([(text([3, 4]), text([5, 6]))])
    trial = ster.StrengthTrial.of([2, 0, 2, "-0", 2.0, 1], random_directions=0)
    report = runtime.evaluate(pairs, vector_of(runtime), trial).strength
    assert asked == [5]  # none, and 2 and 1 with their opposites
    assert report is not None
    assert [each.strength for each in report.candidates] == [2, 0, 2, 0, 2, 1]
    assert report.candidates[0].mean_shift == report.candidates[4].mean_shift
    assert [report.candidates[n].mean_shift for n in (1, 3)] == [0, 0]
