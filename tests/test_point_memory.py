"""What points inside blocks cost: no more than the plan counts, and no second read."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ster.architecture.config import read_config
from ster.decoder.contract import Points
from ster.decoder.devices import implementation
from ster.decoder.steerings import Steerings
from ster.points import ATTN_OUT, MLP_OUT, RESID_MID, RESID_POST
from ster.runs.streams import pack_steered
from tests.checkpoints import make_config, random_ids, write_checkpoint
from tests.conformance.running import open_decoder, read_points

INNER = (ATTN_OUT, MLP_OUT, RESID_MID)
# Of a stream that is wide beside all else that a block has.
SIZES: Any = {
    "hidden_size": 256,
    "head_dim": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 32,
}
CONFIGS = {
    "dense": make_config(**SIZES),
    "experts": make_config("qwen3_moe", **SIZES, mlp_only_layers=[]),
}
PROMPTS = [random_ids(10, seed=seed) for seed in range(200)]


def peak_of_reading(decoder: Any, device: str, points: tuple[str, ...]) -> int:
    """Read many prompts; all rows are wanted of the first two of three blocks."""
    mx: Any = None if device == "cpu" else pytest.importorskip("mlx.core")
    read_points(decoder, PROMPTS[:2], [0, 1, 2], points)
    if mx is not None:
        mx.clear_cache()
        mx.reset_peak_memory()
        read_points(decoder, PROMPTS, [0, 1, 2], points)
        return int(mx.get_peak_memory())
    tracemalloc.start()
    try:
        read_points(decoder, PROMPTS, [0, 1, 2], points)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", CONFIGS)
def test_points_take_what_is_counted_for_them_and_only_one_layers_at_once(
    tmp_path: Path, device: str, kind: str, monkeypatch
):
    if device != "cpu":
        # In pieces, which are joined.
        monkeypatch.setattr("ster.decoder.mlx.block.MAX_ROWS", 600)
    made = write_checkpoint(tmp_path, CONFIGS[kind])
    spec = read_config(tmp_path / "config.json")
    counted = implementation(device).footprint(spec, precision="f32", longest_prompt=10)
    decoder = open_decoder(made, device, keep=True)
    without = peak_of_reading(decoder, device, (RESID_POST,))
    taken = peak_of_reading(decoder, device, INNER) - without
    assert taken <= len(INNER) * 2000 * counted.point_bytes + (1 << 18)


def test_the_next_block_is_read_once_however_many_points_are(
    tmp_path: Path, device: str, monkeypatch
):
    decoder: Any = open_decoder(write_checkpoint(tmp_path), device, keep=False)
    read: list[int] = []
    block = decoder._weights.block

    def watched(layer: int, **how: Any) -> Any:
        read.append(layer)
        return block(layer, **how)

    monkeypatch.setattr(decoder._weights, "block", watched)
    read_points(decoder, [random_ids(9)], [0, 2], (*INNER, RESID_POST))
    assert read == [0, 1, 2]


@pytest.mark.parametrize("kind", CONFIGS)
def test_nothing_is_evaluated_inside_a_block(tmp_path: Path, mlx, kind, monkeypatch):
    mx: Any = pytest.importorskip("mlx.core")
    decoder = open_decoder(write_checkpoint(tmp_path, CONFIGS[kind]), mlx, keep=True)
    steered = pack_steered(decoder.spec, [random_ids(9)])
    [part] = steered.parts(
        decoder, Steerings(decoder, [{}]), num_blocks=2, top_rows=None
    )
    hidden = decoder.embed(steered.packed.token_ids, steered.packed.position_ids)
    points: Points[Any] = Points(wanted=frozenset(INNER))

    def fail(*arrays: object) -> None:
        raise AssertionError("evaluated")

    with decoder.block(0) as block, monkeypatch.context() as patch:
        for name in ("eval", "async_eval"):
            patch.setattr(mx, name, fail)
        hidden = block(hidden, part.inputs_of(0), None, points)
    assert points.found.keys() == set(INNER)
    assert {each.dtype for each in points.found.values()} == {mx.float32}
    before = mx.get_active_memory()
    decoder.materialize(hidden, *points.found.values())
    # All that is asked for is there, and evaluating it once more makes nothing.
    assert mx.get_active_memory() - before >= 4 * 9 * 4 * 256
    taken = mx.get_active_memory()
    mx.eval(hidden, *points.found.values())
    assert mx.get_active_memory() == taken
    assert np.isfinite(decoder.rows(points.found[MLP_OUT], np.arange(9))).all()
