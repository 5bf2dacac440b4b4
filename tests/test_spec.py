"""What follows from a spec: the tensors that a run reads, and who shares tokens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ster.architecture.config import resolve_config
from ster.architecture.modules import Shapes
from ster.architecture.spec import ModelSpec
from tests.checkpoints import ALL_FAMILIES, Config, make_config, make_tensors
from tests.families import field_of
from tests.golden.family_cases import FAMILY_CASES


def spec(family: str = "llama", **changes: object) -> ModelSpec:
    return resolve_config(make_config(family, **changes), "config.json")


def block_shapes(model: ModelSpec) -> Shapes:
    return model.layers[0].shapes


def test_a_block_has_its_published_names():
    assert block_shapes(spec()) == {
        "input_layernorm.weight": (32,),
        "post_attention_layernorm.weight": (32,),
        "self_attn.q_proj.weight": (32, 32),
        "self_attn.k_proj.weight": (16, 32),
        "self_attn.v_proj.weight": (16, 32),
        "self_attn.o_proj.weight": (32, 32),
        "mlp.gate_proj.weight": (48, 32),
        "mlp.up_proj.weight": (48, 32),
        "mlp.down_proj.weight": (32, 48),
    }


@pytest.mark.parametrize(
    ("family", "changes", "more"),
    [
        (
            "qwen2",
            {},
            {
                "self_attn.q_proj.bias": (32,),
                "self_attn.k_proj.bias": (16,),
                "self_attn.v_proj.bias": (16,),
            },
        ),
        (
            "llama",
            {"attention_bias": True, "mlp_bias": True},
            {
                "self_attn.q_proj.bias": (32,),
                "self_attn.k_proj.bias": (16,),
                "self_attn.v_proj.bias": (16,),
                "self_attn.o_proj.bias": (32,),
                "mlp.gate_proj.bias": (48,),
                "mlp.up_proj.bias": (48,),
                "mlp.down_proj.bias": (32,),
            },
        ),
        (
            "qwen3",
            {"head_dim": 8},
            {"self_attn.q_norm.weight": (8,), "self_attn.k_norm.weight": (8,)},
        ),
    ],
)
def test_biases_and_norms_come_on_top_where_the_config_has_them(family, changes, more):
    assert block_shapes(spec(family, **changes)) == block_shapes(spec()) | more


# What stands before a file's names, and the names that only an answer needs.
PREFIXES = ("model.", "transformer.", "gpt_neox.")
AFTER_THE_BLOCKS = ("norm.", "ln_f.", "final_layer_norm.", "lm_head.", "embed_out.")


def in_file(config: Config) -> Shapes:
    """List what a file of the family holds, without what stands in front."""
    found: Shapes = {}
    for name, values in make_tensors(config).items():
        front = next((each for each in PREFIXES if name.startswith(each)), "")
        found[name.removeprefix(front)] = values.shape
    return found


def listed(config: Config, *, head: bool) -> Shapes:
    layers = range(field_of(config, "num_hidden_layers"))
    return shapes_of(resolve_config(config, "config.json"), layers, head=head)


def shapes_of(model: ModelSpec, layers: Sequence[int], *, head: bool) -> Shapes:
    return {
        prefix + name: shape
        for prefix, module in model.modules(layers, head=head)
        for name, shape in module.shapes.items()
    }


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_extraction_reads_a_file_of_the_family_but_for_final_norm_and_head(family):
    config = make_config(family)
    expected = in_file(config)
    for name in [each for each in expected if each.startswith(AFTER_THE_BLOCKS)]:
        del expected[name]
    assert len(expected) < len(in_file(config))
    assert listed(config, head=False) == expected


@pytest.mark.parametrize("family", ALL_FAMILIES)
@pytest.mark.parametrize("tied", [False, True])
def test_generation_reads_the_whole_file(family, tied):
    config = make_config(family, tie_word_embeddings=tied)
    assert listed(config, head=True) == in_file(config)


# Whose files hold no packed bits, which a spec knows nothing of.
PLAIN = [name for name in FAMILY_CASES if not name.endswith("mxfp4")]


@pytest.mark.parametrize("name", PLAIN)
def test_generation_reads_the_whole_file_of_a_golden_case(name):
    config, _ = FAMILY_CASES[name]
    assert listed(config, head=True) == in_file(config)


def test_only_the_blocks_that_run_are_read():
    shapes = shapes_of(spec(), range(2), head=False)
    assert {name.split(".")[1] for name in shapes if "layers" in name} == {"0", "1"}
    assert list(shapes_of(spec(), [], head=False)) == ["embed_tokens.weight"]


def test_a_head_dim_of_its_own_sets_the_projections():
    shapes = block_shapes(spec(head_dim=24))
    assert shapes["self_attn.q_proj.weight"] == (96, 32)
    assert shapes["self_attn.v_proj.weight"] == (48, 32)
    assert shapes["self_attn.o_proj.weight"] == (32, 96)


def test_values_of_a_block_are_counted():
    attention, feed_forward = 2 * 32 * 32 + 2 * 16 * 32, 3 * 48 * 32
    assert spec().layers[0].num_values == 2 * 32 + attention + feed_forward


DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}
YARN = {"rope_type": "yarn", "factor": 4.0}


@pytest.mark.parametrize(
    ("scaling", "num_tokens", "length"),
    [
        (DYNAMIC, 1, 0),
        (DYNAMIC, 64, 0),
        (DYNAMIC, 65, 65),
        (None, 500, 0),
        (YARN, 5000, 0),
    ],
)
def test_only_dynamic_scaling_tells_long_prompts_apart(scaling, num_tokens, length):
    model = spec(rope_scaling=scaling, max_position_embeddings=64)
    assert model.rotary_length(num_tokens) == length
