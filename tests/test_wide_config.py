"""config.json of families that ster does not own: brought into mlx-lm's spelling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ster
from ster.architecture.strangers import KINDS, explain_stranger
from ster.architecture.wide import (
    check_config,
    check_read,
    normalise_config,
    read_length,
)
from ster.errors import ConfigError

PATH = "x/config.json"
BASE = {"model_type": "other", "max_position_embeddings": 64}


def normalise(**fields: Any) -> dict[str, Any]:
    return normalise_config({**BASE, **fields}, PATH)


def refusal(**fields: Any) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        check_and_normalise({**BASE, **fields})
    return refused.value


def check_and_normalise(config: dict[str, Any]) -> None:
    check_config(config, PATH)
    normalise_config(config, PATH)


YARN = {"factor": 4.0, "original_max_position_embeddings": 16}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"rope_theta": 5e5, "partial_rotary_factor": 0.5},
            {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5},
        ),
        (
            {"rope_theta": 5e5, "rope_scaling": {"type": "yarn", **YARN}},
            {"rope_type": "yarn", "rope_theta": 5e5, **YARN},
        ),
    ],
)
def test_both_spellings_of_rotary_fields_become_one(old, new):
    assert normalise(**old) == normalise(rope_parameters=new)


def test_theta_in_rope_parameters_reaches_those_that_read_it_outside():
    config = normalise(rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    assert config["rope_theta"] == 5e5
    assert config["rope_scaling"] is None


def test_a_scaling_without_its_length_takes_the_trained_one():
    config = normalise(rope_scaling={"type": "yarn", "factor": 4.0}, rope_theta=1e4)
    assert config["rope_scaling"]["original_max_position_embeddings"] == 64


def test_the_text_part_of_a_wrapper_is_brought_into_that_spelling_too():
    rope = {"rope_type": "default", "rope_theta": 5e5}
    inner = {"model_type": "inner", "vocab_size": 9, "rope_parameters": rope}
    config = normalise(text_config=inner, tie_word_embeddings=True)
    assert config["text_config"]["rope_theta"] == 5e5
    assert config["text_config"]["tie_word_embeddings"] is True
    assert config["vocab_size"] == 9


def test_an_infinity_as_transformers_writes_it_is_a_number():
    config = normalise(time_step_limit=[0.0, {"__float__": "Infinity"}])
    assert config["time_step_limit"] == [0.0, float("inf")]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}}, "rope_theta"),
        ({"rope_scaling": {"type": "longrope"}}, "rope_scaling"),
        ({"rope_parameters": {"a": {"rope_type": "su"}}}, "rope_scaling"),
        (
            {"rope_scaling": {"type": "yarn", **YARN, "truncate": False}},
            "rope_scaling.truncate",
        ),
        (
            {"rope_scaling": {"type": "yarn", **YARN, "attention_factor": 2.0}},
            "rope_scaling.attention_factor",
        ),
        ({"is_causal": False}, "is_causal"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"text_config": {"is_causal": False}}, "is_causal"),
        ({"model_file": "mine.py"}, "model_file"),
        (
            {"quantization_config": {"quant_method": "gptq"}},
            "quantization_config.quant_method",
        ),
    ],
)
def test_what_would_be_computed_otherwise_is_refused_by_name(fields, field):
    refused = refusal(**fields)
    assert refused.field == field
    assert refused.path == PATH


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("partial_rotary_factor", 0.5),
        ("final_logit_softcapping", 30.0),
        ("logit_scale", 0.5),
        ("clip_qkv", 8.0),
        ("rope_scaling", {"type": "linear", "factor": 2.0}),
        ("per_layer_config", {"0": {"num_attention_heads": 2}}),
    ],
)
def test_a_field_that_changes_numbers_and_is_not_read_is_refused(field, value):
    values = {**BASE, field: value}
    with pytest.raises(ConfigError, match="does not read") as refused:
        check_read(values, set(), PATH)
    assert (refused.value.field, refused.value.found) == (field, value)
    assert check_read(values, {field}, PATH) is None


@pytest.mark.parametrize(
    ("fields", "window"),
    [
        ({"sliding_window": 16}, 16),
        ({"sliding_window": 16, "attention_chunk_size": 8}, 8),
        ({"sliding_window": None}, None),
        ({"sliding_window": 16, "use_sliding_window": False}, None),
        ({"sliding_window": 16, "layer_types": ["full_attention"]}, None),
        ({"sliding_window": 16, "layer_types": ["sliding_attention"]}, 16),
    ],
)
def test_a_window_that_is_not_read_bounds_the_prompts(fields, window):
    assert check_read({**BASE, **fields}, set(), PATH) == window
    assert check_read({**BASE, **fields}, {*fields}, PATH) is None


def test_a_model_without_positions_has_no_length_that_anybody_reaches():
    assert read_length({"max_position_embeddings": 64}) == 64
    assert read_length({"n_positions": 32}) == 32
    assert read_length({}) > 10**9


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"model_type": "bert"}, "encoder"),
        ({"model_type": "strange", "architectures": ["XForMaskedLM"]}, "encoder"),
        ({"model_type": "t5"}, "encoder-decoder"),
        ({"model_type": "strange", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "whisper"}, "speech"),
        ({"model_type": "siglip"}, "pictures"),
        ({"_class_name": "UNet2DConditionModel"}, "diffusion"),
        ({"model_type": "llada"}, "diffusion"),
    ],
)
def test_what_cannot_be_read_is_named_for_what_it_is(document, words):
    (cause,) = explain_stranger(document)
    assert words in cause
    assert "causal language model" in cause


@pytest.mark.parametrize(
    "document", [{"model_type": "stablelm"}, {}, {"model_type": 3}]
)
def test_what_may_be_read_is_no_stranger(document):
    assert explain_stranger(document) == []


def test_no_model_type_is_of_two_kinds():
    names = [name for kind in KINDS for name in kind.families]
    assert len(names) == len(set(names))


def test_the_folder_of_a_diffusion_pipeline_is_named(tmp_path: Path):
    (tmp_path / "model_index.json").write_text("{}")
    with pytest.raises(ConfigError) as refused:
        ster.load(tmp_path)
    assert refused.value.sentence.startswith("model config is missing: ")
    assert "diffusion pipeline" in refused.value.causes[0]
