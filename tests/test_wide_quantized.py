"""Quantized checkpoints of families that run through mlx-lm: MLX's own only."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import ster
from ster.decoder.devices import MLX_CPU
from ster.errors import ConfigError
from tests.checkpoints import text
from tests.wide_checkpoints import write_wide

pytestmark = pytest.mark.skipif(
    find_spec("mlx_lm") is None, reason="the extra mlx-lm is not installed"
)
PROMPTS = [text([3, 4, 5]), text([6, 7])]
FORMATS = [
    {"group_size": 32, "bits": 4},
    {"group_size": 32, "bits": 8, "mode": "affine"},
    {"group_size": 32, "bits": 4, "mode": "mxfp4"},
    {"group_size": 16, "bits": 4, "mode": "nvfp4"},
]


def rows(folder: Path) -> Any:
    return ster.load(folder, device=MLX_CPU).activations(PROMPTS).array


def convert(family: str, folder: Path, how: dict[str, Any]) -> tuple[Path, Path]:
    """Write a checkpoint as mlx_lm.convert does, and its twin with the exact values."""
    import mlx.core as mx

    from ster.decoder.mlx_lm import make_model

    config = json.loads((write_wide(folder, family) / "config.json").read_text())
    file = str(folder / "model.safetensors")
    loaded: Any = mx.load(file)
    kept = (
        make_model(config, "").sanitize(dict(loaded))
        if family != "stablelm"
        else loaded
    )
    packed, plain = {}, {}
    for name, values in kept.items():
        packed[name] = plain[name] = values
        fits = values.ndim > 1 and values.shape[-1] % 32 == 0
        if name.endswith("_proj.weight") and fits:
            parts = mx.quantize(values, **how)
            ends = ("weight", "scales", "biases")[: len(parts)]
            bare = name.removesuffix("weight")
            packed |= {bare + e: part for e, part in zip(ends, parts, strict=True)}
            plain[name] = mx.dequantize(*parts, **how).astype(mx.float32)
    assert packed.keys() > plain.keys()
    twin = write_wide(folder / "twin", family)
    mx.save_safetensors(str(twin / "model.safetensors"), plain)
    mx.save_safetensors(file, packed)
    declared = {"quantization": how, "quantization_config": how}
    (folder / "config.json").write_text(json.dumps({**config, **declared}))
    return folder, twin


@pytest.mark.parametrize("how", FORMATS)
@pytest.mark.parametrize("family", ["stablelm", "olmoe"])
def test_a_quantized_checkpoint_has_the_rows_of_its_exact_values(
    tmp_path: Path, family: str, how: dict[str, Any]
):
    folder, twin = convert(family, tmp_path, how)
    expected = rows(twin)
    assert rows(folder) == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_module_may_be_packed_otherwise_than_the_file_says_of_most(tmp_path: Path):
    how = {"group_size": 32, "bits": 8}
    folder, twin = convert("stablelm", tmp_path, how)
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]
    config["quantization"] = {
        "group_size": 64,
        "bits": 4,
        "model.layers.0.mlp.up_proj": how,
    }
    (folder / "config.json").write_text(json.dumps(config))
    assert rows(folder) == pytest.approx(rows(twin), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    ("declared", "field", "words"),
    [
        ({"quant_method": "gptq"}, "quant_method", "GPTQ"),
        ({"quant_method": "awq", "bits": 4}, "quant_method", "AWQ"),
        ({"load_in_4bit": True}, "quant_method", "bitsandbytes"),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            "quant_method",
            "fp8",
        ),
        ({"quant_method": "mxfp4"}, "quant_method", "mxfp4"),
        ({"quant_method": "nobodys"}, "quant_method", "nobodys"),
    ],
)
@pytest.mark.parametrize("family", ["stablelm", "deepseek_v3"])
def test_other_tools_formats_are_refused_as_those_of_owned_families(
    tmp_path: Path, family: str, declared: dict[str, Any], field: str, words: str
):
    folder = write_wide(tmp_path, family, quantization_config=declared)
    with pytest.raises(ConfigError) as refused:
        ster.load(folder, device=MLX_CPU)
    assert "is a quantized checkpoint (it declares quantization_config)" in str(
        refused.value
    )
    assert refused.value.field == f"quantization_config.{field}"
    assert words in refused.value.causes[0]
    assert "mlx_lm.convert" in refused.value.causes[0]


def test_a_format_that_mlx_does_not_have_is_refused_by_its_field(tmp_path: Path):
    folder = write_wide(tmp_path, quantization={"group_size": 32, "bits": 7})
    with pytest.raises(ConfigError) as refused:
        ster.load(folder, device=MLX_CPU)
    assert (refused.value.field, refused.value.found) == ("quantization.bits", 7)


def test_two_declarations_that_differ_are_refused(tmp_path: Path):
    folder = write_wide(
        tmp_path,
        quantization={"group_size": 32, "bits": 4},
        quantization_config={"group_size": 32, "bits": 8},
    )
    with pytest.raises(ConfigError) as refused:
        ster.load(folder, device=MLX_CPU)
    assert refused.value.field == "quantization_config"
    assert refused.value.found == {"group_size": 32, "bits": 8}
