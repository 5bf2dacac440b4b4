"""Which tensors a run reads, by name and shape."""

from __future__ import annotations

import pytest

from ster.architecture.config import DecoderConfig, resolve_config
from ster.architecture.tensors import (
    block_shapes,
    block_values,
    extraction_shapes,
    generation_shapes,
    group_by_layer,
)
from tests.checkpoints import FAMILIES, make_config, make_tensors


def config(family: str = "llama", **changes: object) -> DecoderConfig:
    return resolve_config(make_config(family, **changes), "config.json")


def test_a_block_has_its_published_names():
    assert block_shapes(config()) == {
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
    assert block_shapes(config(family, **changes)) == block_shapes(config()) | more


@pytest.mark.parametrize("family", FAMILIES)
def test_extraction_reads_a_file_of_the_family_but_for_final_norm_and_head(family):
    in_file = {
        name.removeprefix("model."): values.shape
        for name, values in make_tensors(make_config(family)).items()
    }
    del in_file["norm.weight"], in_file["lm_head.weight"]
    assert extraction_shapes(config(family), range(3)) == in_file


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [False, True])
def test_generation_reads_the_whole_file(family, tied):
    declared = make_config(family, tie_word_embeddings=tied)
    in_file = {
        name.removeprefix("model."): values.shape
        for name, values in make_tensors(declared).items()
    }
    assert generation_shapes(config(family, tie_word_embeddings=tied)) == in_file


def test_tensors_are_grouped_by_their_block():
    names = ["embed_tokens.weight", "layers.0.a.b", "layers.12.a", "layers.0.c"]
    assert group_by_layer({name: name for name in names}) == {
        0: {"a.b": "layers.0.a.b", "c": "layers.0.c"},
        12: {"a": "layers.12.a"},
    }


def test_only_the_blocks_that_run_are_read():
    shapes = extraction_shapes(config(), range(2))
    assert {name.split(".")[1] for name in shapes if "layers" in name} == {"0", "1"}
    assert list(extraction_shapes(config(), [])) == ["embed_tokens.weight"]


def test_a_head_dim_of_its_own_sets_the_projections():
    shapes = block_shapes(config(head_dim=24))
    assert shapes["self_attn.q_proj.weight"] == (96, 32)
    assert shapes["self_attn.v_proj.weight"] == (48, 32)
    assert shapes["self_attn.o_proj.weight"] == (32, 96)


def test_values_of_a_block_are_counted():
    attention, feed_forward = 2 * 32 * 32 + 2 * 16 * 32, 3 * 48 * 32
    assert block_values(config()) == 2 * 32 + attention + feed_forward
