"""Weights of families that run through mlx-lm: each has a place, packed or not."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ster
from ster.architecture.wide import normalise_config
from ster.decoder.devices import MLX_CPU
from ster.errors import ConfigError, DeviceError, WeightsError
from tests.checkpoints import text
from tests.wide_checkpoints import write_wide

pytestmark = pytest.mark.skipif(
    find_spec("mlx_lm") is None, reason="the extra mlx-lm is not installed"
)
PROMPTS = [text([3, 4, 5, 9, 4]), text([6, 7])]
PACKINGS = [
    {"bits": 4, "group_size": 32},
    {"bits": 8, "group_size": 32},
    {"bits": 4, "group_size": 32, "mode": "mxfp4"},
]


def rows(folder: Path, **how: Any) -> np.ndarray:
    array = ster.load(folder, device=MLX_CPU, **how).activations(PROMPTS).array
    return np.asarray(array)


def convert(source: Path, packed: Path, plain: Path, packing: dict[str, Any]) -> None:
    """Quantize a checkpoint as mlx-lm's converter does, and undo it in another."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm import utils

    mode = packing.get("mode", "affine")
    # mlx-lm itself knows one spelling only.
    document = json.loads((source / "config.json").read_text())
    document = normalise_config(document, "")
    (source / "config.json").write_text(json.dumps(document))
    with mx.stream(mx.cpu):
        model, config = utils.load_model(source)
        model, config = utils.quantize_model(
            model, config, packing["group_size"], packing["bits"], mode=mode
        )
        save(packed, source, dict(tree_flatten(model.parameters())), config)
        model = utils.dequantize_model(model)
        save(plain, source, dict(tree_flatten(model.parameters())), document)


def save(folder: Path, source: Path, tensors: dict[str, Any], config: Any) -> None:
    import mlx.core as mx

    folder.mkdir()
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((source / name).read_bytes())


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("family", ["stablelm", "olmoe"])
def test_a_packed_checkpoint_has_the_rows_of_its_values(
    tmp_path: Path, family: str, packing: dict[str, Any]
):
    source = write_wide(tmp_path / "source", family)
    packed, plain = tmp_path / "packed", tmp_path / "plain"
    convert(source, packed, plain, packing)
    stored = json.loads((packed / "config.json").read_text())
    assert stored["quantization"] == stored["quantization_config"]
    expected = rows(plain)
    largest = np.abs(expected).max(axis=(0, 2), keepdims=True)
    assert (np.abs(rows(packed) - expected) / largest).max() < 1e-5
    # And the packing did change something.
    assert (np.abs(rows(source) - expected) / largest).max() > 1e-3


def test_a_matrix_packed_otherwise_than_the_rest_says_so_itself(tmp_path: Path):
    import mlx.core as mx

    source = write_wide(tmp_path / "source")
    packed, plain = tmp_path / "packed", tmp_path / "plain"
    convert(source, packed, plain, {"bits": 8, "group_size": 32})
    config = json.loads((packed / "config.json").read_text())
    config["quantization"]["bits"] = config["quantization_config"]["bits"] = 4
    (packed / "config.json").write_text(json.dumps(config))
    with mx.stream(mx.cpu):
        assert rows(packed) == pytest.approx(rows(plain), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        (
            {"quantization_config": {"quant_method": "gptq"}},
            "quantization_config.quant_method",
        ),
        ({"quantization": {"bits": 4}}, "quantization.group_size"),
        ({"quantization": {"group_size": 32, "bits": "4"}}, "quantization.bits"),
        ({"quantization": [4]}, "quantization"),
        ({"quantize_activations": True}, "quantize_activations"),
    ],
)
def test_another_packing_is_refused_by_name(tmp_path: Path, fields, field: str):
    with pytest.raises(ConfigError) as refused:
        rows(write_wide(tmp_path, **fields))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("gemma4", "model.language_model.layers.9.mlp.up_proj.weight"),
        ("gemma4", "extra.weight"),
        ("glm4_moe", "model.layers.9.mlp.up_proj.weight"),
        ("qwen3_5", "extra.weight"),
        ("dots1", "model.layers.0.self_attn.rotary_emb.extra"),
        ("internlm3", "extra.weight"),
    ],
)
def test_a_tensor_without_a_place_is_refused_by_name(
    tmp_path: Path, family: str, name: str
):
    folder = write_wide(tmp_path, family)
    add_tensor(folder, name)
    with pytest.raises(WeightsError) as refused:
        rows(folder)
    assert refused.value.sentence == "failed to map 1 model weight files"
    assert name.rpartition("model.")[2] in " ".join(refused.value.causes)


def test_a_tensor_that_the_family_leaves_out_in_silence_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from mlx_lm.models import stablelm

    def sanitize(self: Any, weights: dict[str, Any]) -> dict[str, Any]:
        del self
        return {name: each for name, each in weights.items() if "extra" not in name}

    monkeypatch.setattr(stablelm.Model, "sanitize", sanitize, raising=False)
    folder = write_wide(tmp_path)
    expected = rows(folder)
    add_tensor(folder, "model.layers.0.rotary_emb.inv_freq.extra")
    assert np.array_equal(rows(folder), expected)
    add_tensor(folder, "model.layers.0.mlp.extra")
    with pytest.raises(WeightsError) as refused:
        rows(folder)
    assert refused.value.field == "model.layers.0.mlp.extra"


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("dots1", "model.layers.0.self_attn.rotary_emb.inv_freq"),
        ("gemma4", "model.vision_tower.patch_embed.weight"),
        ("qwen3_5", "mtp.fc.weight"),
    ],
)
def test_what_a_family_drops_on_purpose_may_be_there(
    tmp_path: Path, family: str, name: str
):
    folder = write_wide(tmp_path, family)
    expected = rows(folder)
    add_tensor(folder, name)
    assert np.array_equal(rows(folder), expected)


def test_layers_that_only_guess_ahead_may_be_there_where_the_file_says_so(
    tmp_path: Path,
):
    folder = write_wide(tmp_path, "glm4_moe", num_nextn_predict_layers=1)
    expected = rows(folder)
    add_tensor(folder, "model.layers.3.mlp.up_proj.weight")
    assert np.array_equal(rows(folder), expected)
    write_config(folder, num_nextn_predict_layers=0)
    with pytest.raises(WeightsError) as refused:
        rows(folder)
    assert refused.value.field == "model.layers.3.mlp.up_proj.weight"


def test_a_tensor_in_two_files_is_refused(tmp_path: Path):
    folder = write_wide(tmp_path)
    file = folder / "model.safetensors"
    (folder / "other.safetensors").write_bytes(file.read_bytes())
    with pytest.raises(WeightsError) as refused:
        rows(folder)
    assert "lm_head.weight" in " ".join(refused.value.causes)


def write_config(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def add_tensor(folder: Path, name: str) -> None:
    from safetensors.numpy import load_file, save_file

    file = folder / "model.safetensors"
    save_file({**load_file(file), name: np.zeros(4, np.float32)}, file)


# Packed ones too: those whose width no group divides stay as they are.
@pytest.mark.parametrize("packing", [None, {"group_size": 32, "bits": 8}])
@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_experts_at_half_width_are_refused_early_on_mlx_s_cpu(
    tmp_path: Path, precision: str, packing: dict[str, int] | None
):
    folder = write_wide(tmp_path, "olmoe", quantization=packing)
    (folder / "model.safetensors").write_bytes(b"never read")
    with pytest.raises(DeviceError) as refused:
        ster.load(folder, device=MLX_CPU, precision=precision)
    facts = refused.value.field, refused.value.found, refused.value.expected
    assert facts == ("precision", precision, "f32")
    assert "--precision f32" in refused.value.sentence


def test_a_negative_bias_of_the_choice_does_not_lose_to_groups_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = write_wide(tmp_path, "deepseek_v3-groups")
    right = rows(folder)
    raising = "ster.decoder.mlx.whole_filling._raise_choices"
    monkeypatch.setattr(raising, lambda *_: None)
    assert not np.allclose(rows(folder), right, atol=1e-3)
