"""Both decoders against numbers that transformers made in float64, layer by layer."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import ster
from tests.checkpoints import (
    Config,
    Tensors,
    make_tensors,
    text,
    write_checkpoint,
)
from tests.conformance.compare import (
    assert_close,
    precisions,
    tolerance,
)
from tests.golden.expert_cases import EXPERT_CASES
from tests.golden.golden import NAMES, ORACLE_NAMES, fingerprint, read_golden
from tests.golden.routing import CLEAR, is_clear
from tests.golden.texts import MODES, NEAR_TIES, TEXT_NAMES, open_texts
from tests.quantized import plain_twin
from tests.reference import last_rows, logits

# How far transformers itself is from the truth there, at bf16: ster is nearer.
TRANSFORMERS_AT_BF16 = {
    "beside/llama-mha-f16-template-file": 7.9e-2,
    "beside/qwen2": 5.1e-2,
}
# The dynamic and the long prompts go past the trained length on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::ster.SterWarning")


@pytest.mark.parametrize("chat_template", MODES)
@pytest.mark.parametrize("name", TEXT_NAMES)
def test_texts_give_the_residuals_of_transformers_at_every_width(
    tmp_path: Path, name: str, chat_template: str, device: str
):
    golden = open_texts(name, tmp_path)
    texts = golden.of[chat_template]
    for precision in precisions(device)[: 1 if name in NEAR_TIES else None]:
        runtime = ster.load(
            golden.directory,
            device=device,
            precision=precision,
            chat_template=chat_template,
        )
        activations = runtime.activations(texts.prompts)
        assert activations.prompts == tuple(texts.prompts)
        allowed = tolerance(device, precision)
        if precision == "bf16":
            allowed = TRANSFORMERS_AT_BF16.get(name, allowed)
        assert_close(activations.array, texts.residuals, allowed)


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


@pytest.mark.parametrize("name", ORACLE_NAMES)
def test_the_oracle_agrees_with_transformers(name: str):
    golden = read_golden(name)
    tensors = make_tensors(golden.config, golden.seed)
    assert fingerprint(tensors) == golden.fingerprint, "these are not the same weights"
    config, tensors = plain_twin(golden.config, tensors)
    rows = np.stack([last_rows(config, tensors, p) for p in golden.prompts])
    # transformers rounds norms and softmax to f32 in a float64 model too.
    assert_close(rows.astype(np.float32), golden.residuals, 2e-6)


@pytest.mark.parametrize("name", EXPERT_CASES)
def test_no_router_of_a_golden_case_hesitates_so_that_every_width_takes_the_same(name):
    golden = read_golden(name)
    config, tensors = plain_twin(
        golden.config, make_tensors(golden.config, golden.seed)
    )
    for prompt in golden.prompts:
        assert is_clear(config, tensors, prompt, {}, CLEAR)


# Far above every tolerance at f32.
SEEN = 5e-3
# A field of a config, or a part of a tensor's name, and what goes with it.
FEATURES = {
    "rope_scaling": "",
    "rope_parameters": "",
    "use_sliding_window": "",
    "sliding_window": "",
    "attention_bias": r"self_attn.*bias",
    "mlp_bias": r"mlp.*bias",
    "q_norm": r"q_norm",
    "k_norm": r"k_norm",
    "embedding_multiplier": "",
    "attention_multiplier": "",
    "residual_multiplier": "",
    "logits_scaling": "",
    "no_rope_layers": "",
    "no_rope_layer_interval": "",
    "norm_topk_prob": "",
    "qkv_bias": r"self_attn.*bias",
    "sinks": r"sinks",
    "shared_expert": r"shared_expert",
}
# Features that are tensors, and no field says so.
IN_TENSORS = ("q_norm", "k_norm", "sinks", "shared_expert")


def features(name: str) -> list[str]:
    """List what could be dropped of a case."""
    config = read_golden(name).config
    tensors = " ".join(make_tensors(config))
    unused = {"sliding_window"} if config.get("use_sliding_window") is False else set()
    found = {name for name in FEATURES if config.get(name)} - unused
    found |= {name for name in IN_TENSORS if re.search(FEATURES[name], tensors)}
    return sorted(found)


def without(feature: str, config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Drop a feature, with its tensors."""
    left = {key: value for key, value in config.items() if key != feature}
    if feature == "sliding_window":
        left[feature] = 1 << 20  # absent stands for a width of the family's own
    pattern = FEATURES[feature]
    kept = {k: v for k, v in tensors.items() if not (pattern and re.search(pattern, k))}
    return left, kept


@pytest.mark.parametrize(
    ("name", "feature"),
    [(name, each) for name in ORACLE_NAMES for each in features(name)],
)
def test_a_golden_case_would_notice_a_feature_that_is_dropped(name: str, feature: str):
    golden = read_golden(name)
    tensors = make_tensors(golden.config, golden.seed)
    config, tensors = without(feature, *plain_twin(golden.config, tensors))
    found = np.stack([logits(config, tensors, p)[-1] for p in golden.prompts])
    with pytest.raises(AssertionError, match="largest difference"):
        assert_close(found[:, None].astype(np.float32), golden.logits[:, None], SEEN)
