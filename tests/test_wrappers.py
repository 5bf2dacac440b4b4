"""Text models in wrappers: which are read, and what of the outer config counts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ster
from ster.architecture.config import is_owned, resolve_config
from ster.architecture.families import FAMILIES
from ster.architecture.spec import ModelSpec, Naming
from ster.architecture.wrappers import CHECKED, WRONG
from ster.errors import ConfigError
from tests.checkpoints import make_config, write_checkpoint

PLAIN = [name for name in FAMILIES if name not in ("gpt2", "gpt_neox")]


def resolve(
    outer: object, inner: dict[str, Any] | None = None, **fields: Any
) -> ModelSpec:
    config = make_config() if inner is None else inner
    document = {"model_type": outer, "text_config": config, **fields}
    return resolve_config(document, "config.json")


def refusal(outer: object, inner: dict[str, Any] | None = None, **fields: Any):
    with pytest.raises(ConfigError) as caught:
        resolve(outer, inner, **fields)
    return caught.value


@pytest.mark.parametrize("family", PLAIN)
@pytest.mark.parametrize("wrapper", CHECKED)
def test_a_wrapper_that_was_checked_holds_its_text_model(wrapper: str, family: str):
    config = make_config(family, tie_word_embeddings=False)
    config.setdefault("head_dim", 8)  # a wrapper may have another usual one
    wrapped = resolve(wrapper, config, tie_word_embeddings=False)
    assert wrapped.naming.prefixes[:-2] == CHECKED[wrapper]
    bare = resolve_config(config, "config.json")
    assert replace(wrapped, naming=Naming()) == bare


@pytest.mark.parametrize("family", ["gemma", "gemma2"])
def test_a_text_model_whose_prompt_tokens_see_each_other_is_refused_by_name(
    family: str,
):
    refused = refusal("paligemma", make_config(family))
    assert (refused.field, refused.found) == ("model_type", "paligemma")
    assert refused.causes == (WRONG["paligemma"],)


@pytest.mark.parametrize("outer", ["granite_speech", "my_own", "", None, [], {}])
def test_a_wrapper_that_nobody_checked_is_refused_with_the_way_out(outer: object):
    refused = refusal(outer)
    assert (refused.field, refused.found) == ("model_type", outer)
    assert 'a text model of the family "llama"' in str(refused.causes[0])
    assert "save the text model alone" in str(refused.causes[0])


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox"])
def test_a_family_whose_names_were_seen_in_no_wrapper_is_refused(family: str):
    refused = refusal("llava", make_config(family))
    assert (refused.field, refused.found) == ("model_type", "llava")


@pytest.mark.parametrize("outer", ["paligemma", "my_own"])
def test_it_is_refused_before_any_weight_is_read(tmp_path: Path, outer: str):
    made = write_checkpoint(tmp_path, make_config("gemma"))
    document = {"model_type": outer, "text_config": made.config}
    (tmp_path / "config.json").write_text(json.dumps(document))
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ConfigError, match=f'architecture "{outer}" is unsupported'):
        ster.load(tmp_path)


@pytest.mark.parametrize("outer", ["paligemma", "my_own"])
def test_it_goes_to_mlx_lm_on_no_device(outer: str):
    assert is_owned({"model_type": outer, "text_config": make_config("gemma")})


def test_a_text_model_of_another_family_is_as_unknown_as_before():
    document: dict[str, object] = {"model_type": "llava"}
    document["text_config"] = {"model_type": "mpt"}
    assert not is_owned(document)
    with pytest.raises(ConfigError) as caught:
        resolve_config(document, "config.json")
    assert caught.value.found == "llava"


@pytest.mark.parametrize("outer", [False, None])
@pytest.mark.parametrize("inner", [False, None])
def test_false_alone_makes_the_head_a_matrix_of_its_own(
    outer: bool | None, inner: bool | None
):
    config = make_config(tie_word_embeddings=inner)
    spec = resolve("llava", config, tie_word_embeddings=outer)
    assert spec.head is not None
    is_open = outer is inner is None
    assert spec.head.others == ((spec.embedding,) if is_open else ())


@pytest.mark.parametrize(
    ("outer", "inner"),
    [(True, True), (False, True), (None, True), (True, False), (True, None)],
)
def test_any_other_leaves_it_to_the_file(outer: bool | None, inner: bool | None):
    config = make_config(tie_word_embeddings=inner)
    spec = resolve("llava", config, tie_word_embeddings=outer)
    assert spec.head is not None
    assert spec.head.others == (spec.embedding,)


@pytest.mark.parametrize("value", [0, "true", []])
@pytest.mark.parametrize("within", ["", "text_config."])
def test_a_tie_is_true_or_false(value: object, within: str):
    inner = make_config(tie_word_embeddings=value if within else None)
    outer = {} if within else {"tie_word_embeddings": value}
    refused = refusal("llava", inner, **outer)
    assert refused.field == f"{within}tie_word_embeddings"
    assert refused.found == value


def test_the_outer_vocab_size_is_not_the_text_models():
    spec = resolve("llava", make_config(vocab_size=60), vocab_size=99)
    assert spec.vocab_size == 60
    usual = resolve("llava", make_config(vocab_size=...), vocab_size=99)
    assert usual.vocab_size == 32_000


def test_outer_sizes_are_not_the_text_models():
    spec = resolve("mistral3", hidden_size=8, num_hidden_layers=1)
    assert (spec.hidden_size, spec.num_hidden_layers) == (32, 3)


@pytest.mark.parametrize("inside", [True, False])
def test_quantization_counts_on_either_level(inside: bool):
    declared = {"group_size": 64, "bits": 4}
    inner = make_config() | ({"quantization": declared} if inside else {})
    outer = {} if inside else {"quantization": declared}
    found = resolve("mistral3", inner, **outer).quantization
    assert found is not None
    assert found.default is not None
    assert (found.default.bits, found.default.group_size) == (4, 64)


@pytest.mark.parametrize("front", ["model.language_model.", "language_model.model."])
def test_what_is_said_of_a_module_is_found_under_either_spelling(front: str):
    declared = {"group_size": 64, "bits": 4, f"{front}layers.0.mlp.up_proj": False}
    spec = resolve("mistral3", make_config(hidden_size=64), quantization=declared)
    layer = spec.layers[0]
    up, gate = layer.feed_forward.modules[1], layer.feed_forward.modules[0]
    by_name = {each.name: each for each in (up, gate)}
    assert spec.format_of(layer.prefix, by_name["mlp.up_proj"]) is None  # type: ignore[arg-type]
    assert spec.format_of(layer.prefix, by_name["mlp.gate_proj"]) is not None  # type: ignore[arg-type]


def test_a_file_may_say_only_in_what_its_text_model_differs():
    spec = resolve("llava", {"model_type": "llama", "vocab_size": 32_064})
    assert (spec.vocab_size, spec.hidden_size) == (32_064, 4096)
    assert (spec.num_hidden_layers, spec.max_heads) == (32, 32)
    assert spec.layers[0].feed_forward.modules[0].shapes == {
        "mlp.gate_proj.weight": (11_008, 4096)
    }
    assert spec.max_position_embeddings == 2048


def test_a_wrapper_may_have_usual_sizes_of_its_own():
    spec = resolve("voxtral", {"model_type": "llama"})
    assert (spec.hidden_size, spec.num_hidden_layers) == (3072, 30)
    rotary = spec.layers[0].attention.rotary
    assert rotary is not None
    assert rotary.scaling.theta == 1e8
    own = {"rope_type": "default", "rope_theta": 5e5}
    spec = resolve("voxtral", {"model_type": "llama", "rope_parameters": own})
    rotary = spec.layers[0].attention.rotary
    assert rotary is not None
    assert rotary.scaling.theta == 5e5


def test_a_bad_field_is_named_by_its_place():
    refused = refusal("mistral3", make_config(hidden_size="wide"))
    assert refused.field == "text_config.hidden_size"
