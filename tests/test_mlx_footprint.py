"""What opening blocks really takes on a device and on the host, and what is counted."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ster.architecture.config import read_config, resolve_config
from tests.checkpoints import (
    Checkpoint,
    make_config,
    random_ids,
    tensor_shapes,
    write_checkpoint,
)
from tests.conformance.running import open_decoder, read
from tests.expert_families import byte_range
from tests.test_peaks import write_quantized

mx = pytest.importorskip("mlx.core")
from ster.decoder.mlx.footprint import footprint  # noqa: E402

SIZES: Any = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8}
MXFP4 = {"quantization_config": {"quant_method": "mxfp4"}}
DENSE = make_config(**SIZES, intermediate_size=1024)
MOE = make_config(
    "qwen3_moe",
    **SIZES,
    head_dim=32,
    moe_intermediate_size=256,
    num_experts=16,
    mlp_only_layers=[],
)
GPT_OSS = make_config(
    "gpt_oss",
    **SIZES,
    head_dim=32,
    intermediate_size=256,
    num_local_experts=16,
    layer_types=["full_attention"] * 4,
)
CONFIGS = {"dense": DENSE, "experts": MOE, "gpt-oss": GPT_OSS | MXFP4}


def write_drawn(folder: Path, kind: str, stored: str) -> Checkpoint:
    if kind == "quantized":
        write_quantized(folder.parent, DENSE)  # as its folder ``model``
        return Checkpoint(directory=folder, config=DENSE, tensors={})
    config, draw = CONFIGS[kind], np.random.default_rng(0)
    tensors: dict[str, Any] = {}
    for name, shape in tensor_shapes(config).items():
        drawn = byte_range(name)
        if drawn is None:
            tensors[name] = (0.1 * draw.standard_normal(shape)).astype(np.float32)
        else:
            tensors[name] = draw.integers(*drawn, shape, np.uint8)
    return write_checkpoint(folder, config, tensors=tensors, dtype=stored)


@pytest.mark.parametrize("precision", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("stored", ["f32", "bf16"])
@pytest.mark.parametrize("kind", ["dense", "experts", "gpt-oss", "quantized"])
def test_blocks_that_come_and_go_take_no_more_than_is_counted(
    tmp_path: Path, mlx, kind, stored, precision
):
    """Of two blocks, one computes while the next is read."""
    made = write_drawn(tmp_path / "model", kind, stored)
    spec = read_config(made.directory / "config.json")
    counted = footprint(spec, precision=precision, longest_prompt=8)
    opened = open_decoder(made, mlx, precision=precision, keep=False)
    few: Any = [random_ids(3)]
    read(opened, few, [0])  # what is made once for the process
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    tracemalloc.start()
    try:
        read(opened, few, [3])
        on_host = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    taken = mx.get_peak_memory() - before + on_host
    assert max(counted.blocks) < taken < counted.open_bytes + (1 << 19)


def test_experts_of_a_small_model_take_little_of_a_plan():
    """They grow with the tokens, until as many as go through at once."""

    def fixed(family: str, **sizes: int) -> int:
        spec = resolve_config(make_config(family, **sizes), "config.json")
        return footprint(spec, precision="f32", longest_prompt=12).fixed_bytes

    assert fixed("mixtral") == fixed("llama")
    wide = {"hidden_size": 2048, "intermediate_size": 768, "head_dim": 128}
    assert fixed("mixtral", **wide) - fixed("llama", **wide) <= 1 << 29
