"""Families whose files are unlike a Llama's: their fields, runs and wrapped files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ster
from tests.checkpoints import (
    ALL_FAMILIES,
    Tensors,
    make_config,
    make_tensors,
    random_ids,
    write_checkpoint,
    write_weights,
)
from tests.conformance.answering import continue_greedily, scores
from tests.conformance.compare import assert_close, tolerance
from tests.conformance.running import (
    FEW,
    force_streaming,
    force_waves,
    rows_of,
)
from tests.expert_families import YARN as OSS_YARN
from tests.families import DIFFERENCES
from tests.golden.expert_cases import GPT_OSS_ROPE
from tests.golden.family_cases import FAMILY_CASES
from tests.golden.golden import read_golden

# Prompts go past the first length on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::ster.SterWarning")
# Far above every tolerance at f32.
SEEN = 5e-3
WIDE = 1 << 20
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}
YARN |= {"original_max_position_embeddings": 16, "beta_fast": 8.0, "beta_slow": 1.0}
# A case, and what its config would say if something were not read.
CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("gemma2", {"attn_logit_softcapping": None}),
    ("gemma2", {"final_logit_softcapping": None}),
    ("gemma2", {"query_pre_attn_scalar": 256}),
    ("gemma2", {"sliding_window": WIDE}),
    ("gemma2", {"layer_types": ["full_attention"] * 2 + ["sliding_attention"]}),
    ("gemma3-v4", {"rope_theta": 10000.0}),
    ("gemma3-v4", {"rope_local_base_freq": 10000.0}),
    ("gemma3-v4", {"rope_scaling": None}),
    ("gemma3-v4", {"sliding_window": WIDE}),
    ("gemma3-v4", {"sliding_window_pattern": 6}),
    ("gemma3-v4", {"query_pre_attn_scalar": 256}),
    ("gemma3-parameters", {"rope_parameters": None}),
    ("gemma3-parameters", {"final_logit_softcapping": None}),
    ("gemma3-parameters", {"layer_types": None}),
    ("phi3", {"sliding_window": None}),
    ("phi3-longrope", {"rope_scaling": None}),
    ("phi3-longrope", {"original_max_position_embeddings": 128}),
    ("phi3-longrope", {"max_position_embeddings": 24}),
    ("ministral3", {"rope_parameters": YARN}),
    ("ministral3", {"rope_parameters": None}),
    ("cohere2", {"logit_scale": 1.0}),
    ("cohere2", {"sliding_window": WIDE}),
    ("cohere2", {"sliding_window_pattern": 1}),
    ("cohere2-biases", {"layer_types": None}),
    ("glm4", {"partial_rotary_factor": 1.0}),
    ("glm4-no-biases", {"rope_parameters": None}),
    ("olmo3", {"sliding_window": WIDE}),
    ("olmo3", {"layer_types": None}),
    ("olmo3", {"rope_parameters": None}),
    ("exaone4", {"sliding_window": WIDE}),
    ("exaone4", {"sliding_window": None}),
    ("exaone4", {"sliding_window_pattern": 2}),
    ("exaone4-no-window", {"sliding_window": WIDE}),
    ("gpt2-by-layer", {"scale_attn_by_inverse_layer_idx": False}),
    ("gpt2-by-layer", {"scale_attn_weights": True}),
    ("gpt-neox", {"use_parallel_residual": False}),
    ("gpt-neox", {"rope_parameters": None}),
    ("gpt-neox-v4", {"use_parallel_residual": True}),
    ("gpt-neox-v4", {"rotary_pct": 0.25}),
    ("gpt-neox-v4", {"rotary_emb_base": 10000}),
    ("qwen3-moe", {"norm_topk_prob": False}),
    ("qwen3-moe", {"num_experts_per_tok": 1}),
    ("qwen3-moe", {"mlp_only_layers": []}),
    ("qwen3-moe", {"decoder_sparse_step": 2}),
    ("qwen3-moe-v5", {"norm_topk_prob": True}),
    ("qwen3-moe-v5", {"num_experts_per_tok": 3}),
    ("qwen3-moe-v5", {"mlp_only_layers": [1]}),
    ("qwen3-moe-v5", {"decoder_sparse_step": 1}),
    ("qwen3-moe-v5", {"rope_parameters": None}),
    ("qwen3-moe-v5", {"attention_bias": False}),
    ("qwen3-moe-window", {"use_sliding_window": False}),
    ("qwen3-moe-window", {"sliding_window": WIDE}),
    ("qwen2-moe", {"norm_topk_prob": True}),
    ("qwen2-moe", {"num_experts_per_tok": 3}),
    ("qwen2-moe", {"use_sliding_window": True}),
    ("qwen2-moe", {"mlp_only_layers": [2]}),
    ("qwen2-moe", {"decoder_sparse_step": 2}),
    ("qwen2-moe-window", {"norm_topk_prob": False}),
    ("qwen2-moe-window", {"use_sliding_window": False}),
    ("qwen2-moe-window", {"sliding_window": WIDE}),
    ("qwen2-moe-window", {"max_window_layers": 4}),
    ("qwen2-moe-window", {"decoder_sparse_step": 1}),
    ("qwen2-moe-window", {"qkv_bias": False}),
    ("qwen2-moe-layer-types", {"layer_types": None}),
    ("qwen2-moe-layer-types", {"mlp_only_layers": []}),
    ("qwen2-moe-layer-types", {"rope_parameters": None}),
    ("mixtral", {"num_experts_per_tok": 1}),
    ("mixtral", {"rope_theta": 10000.0}),
    ("mixtral", {"sliding_window": 8}),
    ("mixtral-window", {"num_experts_per_tok": 2}),
    ("mixtral-window", {"rope_parameters": None}),
    ("mixtral-window", {"sliding_window": None}),
    ("gpt-oss", {"num_experts_per_tok": 1}),
    ("gpt-oss", {"swiglu_limit": 5.0}),
    ("gpt-oss", {"sliding_window": WIDE}),
    ("gpt-oss", {"layer_types": None}),
    ("gpt-oss", {"attention_bias": False}),
    ("gpt-oss", {"rope_theta": 150000.0}),
    ("gpt-oss", {"rope_scaling": OSS_YARN | {"truncate": True}}),
    ("gpt-oss-v5", {"swiglu_limit": 7.0}),
    ("gpt-oss-v5", {"swiglu_alpha": 1.702}),
    ("gpt-oss-v5", {"layer_types": ["sliding_attention"] * 2 + ["full_attention"]}),
    ("gpt-oss-v5", {"rope_parameters": GPT_OSS_ROPE | {"factor": 2.0}}),
    ("gpt-oss-mxfp4", {"swiglu_limit": 5.0}),
    ("gpt-oss-mxfp4", {"num_experts_per_tok": 3}),
]


def logits_of(runtime: ster.Runtime, prompts: list[list[int]]) -> np.ndarray:
    return np.stack([continue_greedily(runtime, prompt)[1] for prompt in prompts])


@pytest.mark.parametrize(
    ("name", "change"),
    CHANGES,
    ids=[f"{name}-{next(iter(change))}" for name, change in CHANGES],
)
def test_a_golden_case_would_notice_a_field_that_is_not_read(
    tmp_path: Path, name: str, change: dict[str, Any]
):
    golden = read_golden(name)
    config = golden.config | change
    # Drawn by name, so that all that are in both files are the same.
    write_checkpoint(tmp_path, config, tensors=make_tensors(config, golden.seed))
    limit = config.get("max_position_embeddings", 512)
    room = [i for i, prompt in enumerate(golden.prompts) if len(prompt) < limit]
    found = logits_of(ster.load(tmp_path), [golden.prompts[i] for i in room])
    with pytest.raises(AssertionError, match="largest difference"):
        assert_close(found, golden.logits[room, None], SEEN)


def test_every_family_has_a_golden_case():
    cased = {config["model_type"] for config, _ in FAMILY_CASES.values()}
    assert cased == set(DIFFERENCES)


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_a_golden_case_is_the_one_that_its_file_was_made_of(name: str):
    assert read_golden(name).config == FAMILY_CASES[name][0]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_half_width_files_give_the_rows_of_their_own_values(
    tmp_path: Path, device: str, family: str, dtype: str
):
    config = make_config(family)
    stored = write_checkpoint(tmp_path / "half", config, dtype=dtype)
    same = write_checkpoint(tmp_path / "f32", config, tensors=stored.tensors)
    rows = rows_of(same, device=device)
    assert_close(rows_of(stored, device=device), rows.astype(np.float64), 1e-6)


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_streamed_weights_in_waves_of_two_give_the_rows_of_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, device: str
):
    golden = read_golden(name)
    made = write_checkpoint(tmp_path, golden.config, seed=golden.seed)
    force_waves(monkeypatch, 2)
    force_streaming(monkeypatch, device)
    rows = rows_of(made, golden.prompts, device=device)
    assert_close(rows, golden.residuals, tolerance(device, "f32"))


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_a_continuation_has_the_logits_of_the_whole_text_read_anew(
    tmp_path: Path, name: str, device: str
):
    """It goes past every window, and past the first length but for longrope's."""
    golden = read_golden(name)
    write_checkpoint(tmp_path, golden.config, seed=golden.seed)
    runtime, prompt = ster.load(tmp_path, device=device), random_ids(6)
    tokens, logits = continue_greedily(runtime, prompt, 12)
    texts = [[*prompt, *tokens[:count]] for count in range(12)]
    anew = logits_of(runtime, texts)[:, 0]
    near = tolerance(device, "f32")
    assert_close(logits[:, None], anew[:, None].astype(np.float64), near)


CARRIED = {
    "gpt2": ("transformer.", ("h.0.attn.bias", "h.1.attn.masked_bias")),
    "gpt_neox": (
        "gpt_neox.",
        (
            "layers.0.attention.bias",
            "layers.1.attention.masked_bias",
            "layers.2.attention.rotary_emb.inv_freq",
        ),
    ),
}


@pytest.mark.parametrize("bare", [True, False], ids=["no prefix", "prefix"])
@pytest.mark.parametrize("family", CARRIED)
def test_old_files_carry_masks_along_and_may_lack_the_prefix(
    tmp_path: Path, family: str, bare: bool
):
    made = write_checkpoint(tmp_path, make_config(family))
    expected = rows_of(made)
    prefix, carried = CARRIED[family]
    masks = {prefix + name: np.ones((1, 1, 8, 8), np.float32) for name in carried}
    named = {
        name.removeprefix(prefix) if bare else name: values
        for name, values in (made.tensors | masks).items()
    }
    write_weights(tmp_path, named)
    assert np.array_equal(rows_of(made), expected)


VISION: Tensors = {
    "vision_tower.vision_model.embeddings.patch_embedding.weight": np.ones(
        (4, 3, 2, 2), np.float32
    ),
    "multi_modal_projector.mm_soft_emb_norm.weight": np.ones(4, np.float32),
}
LATER_VISION: Tensors = {f"model.{name}": each for name, each in VISION.items()}
# How transformers 4 and 5 name a text model in a wrapper, and what lies beside it.
SPELLINGS = {
    "v4": ("language_model.model.", "language_model.lm_head.weight", VISION),
    "v5": ("model.language_model.", "lm_head.weight", LATER_VISION),
    "text": ("model.text_model.", "lm_head.weight", LATER_VISION),
    "mlx": ("language_model.", "language_model.lm_head.weight", VISION),
}
WRAPPED = [
    ("gemma3", "gemma3_text", ("v4", "v5")),
    ("mistral3", "ministral3", ("v4", "v5")),
    ("llava_next", "mistral", ("v4", "v5")),
    ("llava_onevision", "qwen2", ("v4", "v5")),
    ("internvl", "qwen3_moe", ("v4", "v5")),
    ("aya_vision", "cohere2", ("v4", "v5")),
    ("idefics3", "llama", ("text", "mlx")),
    ("voxtral", "llama", ("v4", "v5")),
]
SPELLED = [(outer, inner, each) for outer, inner, some in WRAPPED for each in some]


def wrap(
    directory: Path,
    outer: str,
    config: dict[str, Any],
    spelling: str,
    shards: int = 1,
    tensors: Tensors | None = None,
) -> Path:
    """Write a vision model around the text model of a config."""
    prefix, head, beside = SPELLINGS[spelling]
    made = write_checkpoint(directory, config, tensors=tensors)
    document = {
        "model_type": outer,
        "text_config": config,
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 4},
        "tie_word_embeddings": config["tie_word_embeddings"],
    }
    (directory / "config.json").write_text(json.dumps(document))
    named = {
        head if name == "lm_head.weight" else prefix + name.removeprefix("model."): each
        for name, each in made.tensors.items()
    }
    (directory / "model.safetensors").unlink()
    write_weights(directory, beside | named, shards=shards)
    return directory


@pytest.mark.parametrize(
    ("tied", "shards"), [(True, 1), (False, 3)], ids=["tied", "untied"]
)
@pytest.mark.parametrize(("outer", "inner", "spelling"), SPELLED)
def test_a_text_model_in_a_wrapper_is_the_text_model(
    tmp_path: Path,
    device: str,
    outer: str,
    inner: str,
    spelling: str,
    tied: bool,
    shards: int,
):
    config = make_config(inner, tie_word_embeddings=tied)
    config.setdefault("head_dim", 8)  # a wrapper may have another usual one
    bare = write_checkpoint(tmp_path / "bare", config).directory
    wrapped = wrap(tmp_path / "wrapped", outer, config, spelling, shards)
    rows = rows_of(wrapped, device=device)
    assert np.array_equal(rows, rows_of(bare, device=device))
    one, other = (ster.load(each, device=device) for each in (wrapped, bare))
    assert np.array_equal(logits_of(one, FEW), logits_of(other, FEW))
    assert scores(one, FEW[1:]) == scores(other, FEW[1:])


# What outer and inner config say of it, None where they say nothing.
DOUBTFUL = [(True, None), (True, False), (None, None), (None, True), (False, True)]


@pytest.mark.parametrize("tied", [True, False], ids=["no head", "a head"])
@pytest.mark.parametrize(("outer", "inner"), DOUBTFUL)
def test_a_wrappers_head_is_the_files_where_it_has_one(
    tmp_path: Path, device: str, outer: bool | None, inner: bool | None, tied: bool
):
    config = make_config("mistral", tie_word_embeddings=tied)
    bare = write_checkpoint(tmp_path / "bare", config).directory
    wrapped = wrap(tmp_path / "wrapped", "mistral3", config, "v4")
    document = json.loads((wrapped / "config.json").read_text())
    document["tie_word_embeddings"] = outer
    document["text_config"]["tie_word_embeddings"] = inner
    (wrapped / "config.json").write_text(json.dumps(document))
    one, other = (ster.load(each, device=device) for each in (wrapped, bare))
    assert np.array_equal(logits_of(one, FEW), logits_of(other, FEW))
