"""Both decoders against numbers that transformers made in float64, layer by layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ster
from tests.checkpoints import make_tensors, text, write_checkpoint
from tests.conformance.compare import (
    assert_close,
    assert_width,
    precisions,
    tolerance,
)
from tests.golden.golden import NAMES, fingerprint, read_golden
from tests.golden.texts import MODES, TEXT_NAMES, open_texts
from tests.reference import last_rows

# The dynamic and the long prompts go past the trained length on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::ster.SterWarning")


@pytest.mark.parametrize("chat_template", MODES)
@pytest.mark.parametrize("name", TEXT_NAMES)
def test_texts_give_the_residuals_of_transformers_at_every_width(
    tmp_path: Path, name: str, chat_template: str, device: str
):
    golden = open_texts(name, tmp_path)
    texts = golden.of[chat_template]
    for precision in precisions(device):
        runtime = ster.load(
            golden.directory,
            device=device,
            precision=precision,
            chat_template=chat_template,
        )
        activations = runtime.activations(texts.prompts)
        assert activations.prompts == tuple(texts.prompts)
        assert_close(activations.array, texts.residuals, tolerance(device, precision))
        assert_width(activations.array, precision)


@pytest.mark.parametrize("name", NAMES)
def test_ster_agrees_with_transformers_at_every_width(
    tmp_path: Path, name: str, device: str
):
    golden = read_golden(name)
    write_checkpoint(tmp_path, golden.config, seed=golden.seed)
    prompts = [text(prompt) for prompt in golden.prompts]
    for precision in precisions(device):
        runtime = ster.load(tmp_path, device=device, precision=precision)
        array = runtime.activations(prompts).array
        assert_close(array, golden.residuals, tolerance(device, precision))
        assert_width(array, precision)


@pytest.mark.parametrize("name", NAMES)
def test_the_oracle_agrees_with_transformers(name: str):
    golden = read_golden(name)
    tensors = make_tensors(golden.config, golden.seed)
    assert fingerprint(tensors) == golden.fingerprint, "these are not the same weights"
    rows = np.stack([last_rows(golden.config, tensors, p) for p in golden.prompts])
    # transformers rounds norms and softmax to f32 in a float64 model too.
    assert_close(rows.astype(np.float32), golden.residuals, 2e-6)


# llama-long is about long prompts: nothing in it could be dropped.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "llama-long"])
def test_a_golden_case_would_notice_a_feature_that_is_dropped(name: str):
    golden = read_golden(name)
    tensors = make_tensors(golden.config, golden.seed)
    dropped = [
        "rope_scaling",
        "rope_parameters",
        "use_sliding_window",
        "attention_bias",
        "mlp_bias",
    ]
    config = {k: v for k, v in golden.config.items() if k not in dropped}
    config |= {"sliding_window": None} if config["model_type"] == "mistral" else {}
    tensors = {
        k: v for k, v in tensors.items() if "bias" not in k and "q_norm" not in k
    }
    rows = np.stack([last_rows(config, tensors, p) for p in golden.prompts])
    with pytest.raises(AssertionError, match="largest difference"):
        assert_close(rows.astype(np.float32), golden.residuals, 5e-2)
