"""Fields that mlx-lm takes otherwise than transformers: used, mended or refused."""

from __future__ import annotations

from typing import Any

import pytest

from ster.architecture.wide import check_config, normalise_config
from ster.architecture.wide_families import CHECKED
from ster.architecture.wide_fields import INF
from ster.errors import ConfigError

PATH = "x/config.json"
LINEAR = {"type": "linear", "factor": 2.0}
DEFAULT = {"rope_type": "default", "rope_theta": 1e4}


def read(family: str, **fields: Any) -> dict[str, Any]:
    config = {"model_type": family, **fields}
    check_config(config, PATH)
    return normalise_config(config, PATH)


def refusal(family: str, **fields: Any) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        read(family, **fields)
    assert refused.value.path == PATH
    return refused.value


ACTIVATIONS = {
    "gemma4": ("hidden_activation", "gelu_pytorch_tanh"),
    "gemma4_text": ("hidden_activation", "gelu_pytorch_tanh"),
    "gptj": ("activation_function", "gelu_new"),
    "nemotron": ("hidden_act", "relu2"),
    "nemotron_h": ("mlp_hidden_act", "relu2"),
    "phi": ("hidden_act", "gelu_new"),
    "apertus": ("hidden_act", "xielu"),
}
# Their feed-forward has none that a field names.
WITHOUT = {"lfm2", "lfm2_moe"}


@pytest.mark.parametrize("family", sorted(CHECKED.keys() - WITHOUT))
def test_an_activation_other_than_the_one_built_in_is_refused(family: str):
    field, usual = ACTIVATIONS.get(family, ("hidden_act", "silu"))
    scaling = {"rope_parameters": DEFAULT}
    read(family, **{field: usual}, **scaling)
    refused = refusal(family, **{field: "relu"}, **scaling)
    assert (refused.field, refused.found) == (field, "relu")


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [
        ("afmoe", "score_func", "softmax"),
        ("deepseek_v3", "rope_interleave", False),
        ("falcon_h1", "time_step_limit", [0.1, 0.2]),
        ("gemma4", "rope_traditional", True),
        ("glm4_moe_lite", "rms_norm_eps", 0.5),
        ("granitemoehybrid", "mamba_n_groups", 2),
        ("mamba", "layer_norm_epsilon", 0.5),
        ("mamba2", "n_groups", 2),
        ("nemotron_h", "mamba_hidden_act", "gelu"),
    ],
)
def test_a_value_that_mlx_lm_does_not_compute_is_refused(family, field, value):
    refused = refusal(family, **{field: value})
    assert (refused.field, refused.found) == (field, value)


def test_a_field_of_the_text_part_is_held_to_the_wrapper_s_family():
    inner = {"model_type": "gemma4_text", "hidden_activation": "silu"}
    assert refusal("gemma4", text_config=inner).field == "hidden_activation"


@pytest.mark.parametrize("family", ["afmoe", "deepseek_v3", "glm4_moe"])
def test_a_lone_expert_whose_weight_is_made_one_is_refused(family: str):
    refused = refusal(family, num_experts_per_tok=1)
    assert (refused.field, refused.found) == ("num_experts_per_tok", 1)
    read(family, num_experts_per_tok=1, norm_topk_prob=False)


@pytest.mark.parametrize("family", ["apertus", "laguna"])
def test_a_family_with_a_scaling_of_its_own_has_to_name_one(family: str):
    assert refusal(family, rope_theta=1e4).field == "rope_parameters"


@pytest.mark.parametrize(
    ("family", "kind"), [("deepseek_v2", "linear"), ("lfm2", "yarn")]
)
def test_a_scaling_that_the_family_does_not_compute_is_refused(family, kind):
    refused = refusal(family, rope_parameters={**DEFAULT, **LINEAR, "rope_type": kind})
    assert (refused.field, refused.found) == ("rope_scaling", kind)


@pytest.mark.parametrize(
    "parameters", [DEFAULT, {"full_attention": DEFAULT, "sliding_attention": DEFAULT}]
)
@pytest.mark.parametrize("family", ["stablelm", "cohere", "gemma4", "other"])
def test_a_scaling_beside_other_rope_parameters_is_refused(family, parameters):
    refused = refusal(family, rope_parameters=parameters, rope_scaling=LINEAR)
    assert (refused.field, refused.found) == ("rope_scaling", LINEAR)


def test_both_spellings_beside_each_other_may_say_the_same():
    told = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    both = read("olmoe", rope_parameters=told, rope_scaling=LINEAR)
    assert both["rope_scaling"]["factor"] == 2.0
    assert both["rope_scaling"]["type"] == "linear"
    other = {**told, "factor": 4.0}
    refused = refusal("olmoe", rope_parameters=other, rope_scaling=LINEAR)
    assert refused.field == "rope_scaling"


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [
        ("falcon_h1", "embedding_multiplier", 1.0),
        ("gemma4", "final_logit_softcapping", None),
        ("granitemoehybrid", "time_step_limit", [0.0, INF]),
        ("nemotron_h", "time_step_limit", [0.001, INF]),
        ("qwen3_next", "norm_topk_prob", True),
        ("exaone_moe", "rope_theta", 1e4),
    ],
)
def test_what_a_file_does_not_say_is_what_transformers_takes(family, field, value):
    assert read(family)[field] == value


def test_a_theta_in_rope_parameters_is_kept():
    assert read("cohere", rope_parameters={"rope_theta": 8e6})["rope_theta"] == 8e6


@pytest.mark.parametrize("name", ["sliding_window", "attention_chunk_size"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True, "many"])
def test_a_window_that_is_no_count_is_refused(name: str, value: object):
    refused = refusal("gemma4", text_config={name: value})
    assert (refused.field, refused.found) == (name, value)


EXPERTS = {"num_experts": 4}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({**EXPERTS, "num_experts_per_tok": 0}, "num_experts_per_tok"),
        ({**EXPERTS, "num_experts_per_tok": -1}, "num_experts_per_tok"),
        ({**EXPERTS, "num_experts_per_tok": 5}, "num_experts_per_tok"),
        ({**EXPERTS, "num_experts_per_tok": 1.5}, "num_experts_per_tok"),
        ({**EXPERTS, "top_k_experts": 5}, "top_k_experts"),
        ({"n_routed_experts": 4, "n_group": 3}, "n_group"),
        ({"n_routed_experts": 4, "n_group": 2, "topk_group": 3}, "topk_group"),
        ({"n_routed_experts": 4, "n_group": 2, "topk_group": 0}, "topk_group"),
    ],
)
def test_more_experts_than_there_are_or_none_are_refused(fields, field):
    refused = refusal("olmoe", **fields)
    assert (refused.field, refused.found) == (field, fields[field])


def test_a_dense_model_may_name_experts_that_it_lacks():
    read("granitemoehybrid", num_local_experts=0, num_experts_per_tok=0)
