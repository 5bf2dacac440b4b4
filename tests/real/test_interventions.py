"""Ways to apply a vector on a trained model, against hooks that do the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from ster import Intervention, SteeringVector, load
from ster.runs.sampling import Answering
from ster.runs.scoring import plan_scoring
from ster.runs.writing import plan_writing
from ster.workflows.steering import sum_deltas
from tests.real import make_interventions as made
from tests.real.golden import STEERED_LAYERS, steering


@pytest.fixture(scope="module")
def hooked() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(made.FILE.read_bytes())
    return document


def intervention(model: str, case: Mapping[str, Any]) -> Intervention:
    words = {key: case[key] for key in ("where", "below", "keep_norm") if key in case}
    vectors = steering()
    layers: Any = STEERED_LAYERS
    if case.get("layers") == made.ALL:
        layers, words["layers"] = STEERED_LAYERS[0], "all"
        vectors = {layers: vectors[layers]}
    vector = SteeringVector.of([*vectors.values()], layers=layers, model=model)
    return Intervention(vector, case["strength"], how=case["how"], **words)


# MLX is slow on a cpu: there it takes a case of every kind.
@pytest.mark.parametrize(("name", "every"), [("cpu", 1), ("mlx-cpu", 9)])
def test_texts_and_scores_are_those_of_hooks(smollm2, hooked, name, every):
    """The cases run at once: each is what it is alone."""
    runtime = load(smollm2, device=name)
    session, cases = runtime._session, [hooked["unsteered"], *hooked["cases"]][::every]
    assert [{**case, "token_ids": 0, "scored": 0} for case in hooked["cases"]] == [
        {**case, "token_ids": 0, "scored": 0} for case in made.CASES
    ]
    deltas = [sum_deltas(intervention(runtime.model, case), session) for case in cases]
    how = Answering(max_new_tokens=made.MAX_NEW_TOKENS)
    writing = plan_writing(session, [hooked["prompt"]["text"]], how, deltas)
    assert [*writing.token_ids[0]] == hooked["prompt"]["token_ids"]
    for answer, case in zip(writing.answers(), cases, strict=True):
        known = case["token_ids"]
        assert [*answer.token_ids[: len(known)]] == known, case
    asked = [made.QUESTION] * len(made.ANSWERS)
    responses = session.encoder.encode_responses(made.ANSWERS, asked)
    assert [[*ids] for ids in responses.token_ids] == hooked["responses"]["token_ids"]
    assert set(responses.starts) == {hooked["responses"]["start"]}
    scoring = plan_scoring(session, responses, None, steerings=len(cases))
    with scoring.open() as scorer:
        found = np.array(scorer.score_all(deltas))
    expected = np.array([case["scored"] for case in cases])
    assert np.abs(found - expected).max() < 1e-3
    # The cases differ from each other by far more than that: 0 times a vector is none.
    assert len({tuple(np.round(scores, 2)) for scores in expected}) > len(cases) - 2
