"""What MLX holds while it works: few attention batches, and narrow weights."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ster
from ster.architecture.config import read_config
from ster.architecture.tensors import block_values
from tests.checkpoints import make_config, random_ids, text, write_checkpoint
from tests.conformance.running import Pieces, open_decoder, read

mx = pytest.importorskip("mlx.core")

WIDE = make_config(
    hidden_size=64,
    head_dim=32,
    num_attention_heads=8,
    num_key_value_heads=8,
    num_hidden_layers=1,
    max_position_embeddings=4096,
)


@pytest.fixture
def mlx(device: str) -> str:
    if device == "cpu":
        pytest.skip("numpy holds what it is told to")
    return device


def test_of_many_attention_batches_few_are_held_at_once(tmp_path: Path, mlx):
    """Of two layers, since of the last only one row is computed."""
    config = WIDE | {"num_hidden_layers": 2}
    opened = open_decoder(write_checkpoint(tmp_path, config), mlx, resident=True)
    decoder: Any = Pieces(opened, max_attention_pairs=32 * 2048)
    mx.reset_peak_memory()
    read(decoder, [random_ids(2048)], [1])
    scores, keys = 8 * 32 * 2048 * 4, 2048 * 256 * 4  # bytes; there are 64 batches
    stream = 2048 * 4 * (3 * 64 + 6 * 256 + 4 * 48)
    assert mx.get_peak_memory() < stream + 8 * (scores + 2 * keys)


def test_one_attention_batch_gathers_few_keys_of_many_prompts(
    tmp_path: Path, mlx, monkeypatch
):
    """The last token of each prompt sees all that they share."""
    opened = open_decoder(write_checkpoint(tmp_path, WIDE), mlx, resident=True)
    stem = random_ids(200)
    prompts = [[*stem, 3 + n % 50, 3 + n // 50] for n in range(400)]
    monkeypatch.setattr("ster.decoder.mlx.decoder.MAX_GATHERED", 1 << 20)
    mx.reset_peak_memory()
    read(opened, prompts, [0])
    # All that they gather, and its copies, would be six times as much.
    assert mx.get_peak_memory() < 16 * 4 * (1 << 20)


def test_weights_are_held_at_the_width_of_the_run_before_they_are_used(
    tmp_path: Path, mlx
):
    config = make_config(hidden_size=256, intermediate_size=512)
    made = write_checkpoint(tmp_path, config)
    decoder = open_decoder(made, mlx, precision="bf16", resident=True)
    before = mx.get_active_memory()
    with decoder.block(0):
        held = mx.get_active_memory() - before
    values = block_values(read_config(tmp_path / "config.json"))
    assert 2 * values <= held < 2.2 * values


@pytest.mark.parametrize("run", ["activations", "generate"])
def test_a_run_that_was_broken_off_in_a_thread_leaves_blocks_for_others(
    tmp_path: Path, mlx, run
):
    runtime = ster.load(write_checkpoint(tmp_path).directory, device=mlx)
    runtime.generate(text([3, 4]), max_new_tokens=1)
    runtime._model._kept = None

    def broken_off() -> None:
        decoder = runtime._model.open_model(resident=True)
        with pytest.raises(KeyboardInterrupt), decoder as opened, opened.block(0):
            raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as other:
        other.submit(broken_off).result(60)
    if run == "generate":
        assert runtime.generate(text([3, 4]), max_new_tokens=1)
    else:
        assert runtime.activations([text([3, 4])]).array.any()


@pytest.mark.parametrize("run", ["activations", "generate"])
def test_threads_may_share_a_runtime_from_its_first_run_on(tmp_path: Path, mlx, run):
    made, prompts = write_checkpoint(tmp_path), [text([n, 4]) for n in range(3, 9)]
    for _ in range(5):
        runtime = ster.load(made.directory, device=mlx)
        with runtime._model.open_model(resident=True):
            pass  # it is kept, and has no blocks yet

        def answer(prompt: str, runtime: ster.Runtime = runtime) -> Any:
            if run == "generate":
                return runtime.generate(prompt, max_new_tokens=2)
            return runtime.activations([prompt]).array.ravel().tolist()

        with ThreadPoolExecutor(3) as pool:
            together = list(pool.map(answer, prompts))
        for there, alone in zip(together, map(answer, prompts), strict=True):
            assert there == (alone if run == "generate" else pytest.approx(alone))
