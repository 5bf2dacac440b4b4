"""Text models in wrappers, held to the numbers that transformers made of them alone.

``golden/README.md`` says how these were made. In a wrapper the text model's stream is
the same, so that a case of its own would hold the same numbers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ster
from tests.checkpoints import make_tensors
from tests.conformance.answering import continue_greedily
from tests.conformance.compare import assert_close, tolerance
from tests.conformance.running import rows_of
from tests.conformance.test_families import wrap
from tests.golden.golden import read_golden

# Prompts go past the first length on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::ster.SterWarning")
# A wrapper, and the case of its text model.
CASES = [
    ("mistral3", "ministral3"),
    ("mistral3", "mistral-head-dim"),
    ("gemma3", "gemma3-v4"),
    ("aya_vision", "cohere2-biases"),
    ("exaone4_5", "exaone4"),
    ("internvl", "qwen3-bias-window"),
    ("llava_onevision", "qwen2-window"),
]


@pytest.mark.parametrize("spelling", ["v4", "v5"])
@pytest.mark.parametrize(("outer", "name"), CASES)
def test_a_wrapped_text_model_has_the_rows_and_logits_of_transformers(
    tmp_path: Path, device: str, outer: str, name: str, spelling: str
):
    golden = read_golden(name)
    config = dict(golden.config)
    config.setdefault("tie_word_embeddings", False)
    tensors = make_tensors(config, golden.seed)
    model = wrap(tmp_path, outer, config, spelling, tensors=tensors)
    near = tolerance(device, "f32")
    assert_close(rows_of(model, golden.prompts, device=device), golden.residuals, near)
    runtime = ster.load(model, device=device)
    found = np.stack([continue_greedily(runtime, each)[1] for each in golden.prompts])
    assert_close(found, golden.logits[:, None], near)
