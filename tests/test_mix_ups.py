"""A document in the place of another kind is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ster import Activations, PairSet, PromptSet, SteeringVector, SterError

PAIRS = {"pairs": [{"positive": "calm", "negative": "storm"}]}
VECTOR: dict[str, object] = {"schema_version": 1, "product": "ster", "vectors": []}
PROMPTS = {"prompts": ["calm"]}


@pytest.mark.parametrize(
    ("read", "document", "said"),
    [
        (SteeringVector.load, PAIRS, "holds pairs, which --pairs takes"),
        (SteeringVector.load, PROMPTS, "holds prompts"),
        (PairSet.load, VECTOR, "is a steering artifact, which --vector takes"),
        (PairSet.load, PROMPTS, "holds prompts"),
        (PromptSet.load, PAIRS, "holds pairs, which --pairs takes"),
        (PromptSet.load, VECTOR, "is a steering artifact, which --vector takes"),
        (Activations.load, VECTOR, "is a steering artifact, which --vector takes"),
    ],
)
def test_what_was_meant_for_another_flag_is_named(read, document, said, tmp_path: Path):
    path = tmp_path / "mixed.json"
    path.write_text(json.dumps(document))
    with pytest.raises(SterError) as refused:
        read(path)
    assert f"the document {said}; missing field" in str(refused.value)
