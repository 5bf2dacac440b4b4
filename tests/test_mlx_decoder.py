"""What MLX holds while it works: few attention batches, and narrow weights."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ster
from ster.architecture.config import read_config
from ster.errors import CapacityError, DeviceError
from tests.checkpoints import make_config, random_ids, text, write_checkpoint
from tests.conformance.running import Pieces, open_decoder, read

mx = pytest.importorskip("mlx.core")
from ster.decoder.mlx.block import MAX_PRODUCT  # noqa: E402
from ster.decoder.mlx.decoder import device_memory  # noqa: E402
from ster.decoder.mlx.limits import ProcessLimit  # noqa: E402

WIDE = make_config(
    hidden_size=64,
    head_dim=32,
    num_attention_heads=8,
    num_key_value_heads=8,
    num_hidden_layers=1,
    max_position_embeddings=4096,
)


def test_of_many_attention_batches_few_are_held_at_once(tmp_path: Path, mlx):
    """Of two layers, since of the last only one row is computed."""
    config = WIDE | {"num_hidden_layers": 2}
    opened = open_decoder(write_checkpoint(tmp_path, config), mlx, keep=True)
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
    opened = open_decoder(write_checkpoint(tmp_path, WIDE), mlx, keep=True)
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
    decoder = open_decoder(made, mlx, precision="bf16", keep=True)
    before = mx.get_active_memory()
    with decoder.block(0):
        held = mx.get_active_memory() - before
    values = read_config(tmp_path / "config.json").layers[0].num_values
    assert 2 * values <= held < 2.2 * values


@pytest.mark.parametrize("run", ["activations", "generate"])
def test_a_run_that_was_broken_off_in_a_thread_leaves_blocks_for_others(
    tmp_path: Path, mlx, run
):
    runtime = ster.load(write_checkpoint(tmp_path).directory, device=mlx)
    runtime.generate(text([3, 4]), max_new_tokens=1)
    session = runtime._session
    plan = session.plan([[3, 4]], 3, head=True, repeats=True)
    session._weights = None

    def broken_off() -> None:
        opening = session.open(plan)
        with pytest.raises(KeyboardInterrupt), opening as opened, opened.block(0):
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
        session = runtime._session
        with session.open(session.plan([[3, 4]], 3, head=True, repeats=True)):
            pass  # the weights are there, and no block yet

        def answer(prompt: str, runtime: ster.Runtime = runtime) -> Any:
            if run == "generate":
                return runtime.generate(prompt, max_new_tokens=2)
            return runtime.activations([prompt]).array.ravel().tolist()

        with ThreadPoolExecutor(3) as pool:
            together = list(pool.map(answer, prompts))
        for there, alone in zip(together, map(answer, prompts), strict=True):
            assert there == (alone if run == "generate" else pytest.approx(alone))


def test_a_command_that_fails_is_a_refusal(tmp_path: Path, mlx, monkeypatch):
    runtime = ster.load(write_checkpoint(tmp_path).directory, device=mlx)

    def fail(*arrays: object) -> None:
        raise RuntimeError("[METAL] Command buffer execution failed")

    monkeypatch.setattr(mx, "eval", fail)
    with pytest.raises(DeviceError, match="failed while it computed") as caught:
        runtime.activations([text([3, 4])])
    assert "Command buffer execution failed" in caught.value.causes[0]


@pytest.mark.parametrize(
    "sentence",
    [
        "[malloc] Unable to allocate 99 bytes.",
        "[METAL] Command buffer execution failed: Insufficient Memory "
        "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
    ],
)
def test_memory_that_the_device_lacks_is_a_refusal(
    tmp_path: Path, mlx, monkeypatch, sentence
):
    runtime = ster.load(write_checkpoint(tmp_path).directory, device=mlx)

    def fail(*arrays: object) -> None:
        raise RuntimeError(sentence)

    monkeypatch.setattr(mx, "eval", fail)
    with pytest.raises(CapacityError, match="no memory left"):
        runtime.generate(text([3, 4]))


@pytest.fixture
def failing_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a command fail of which an evaluation says nothing."""

    def fail(stream: object) -> None:
        raise RuntimeError("[METAL] Command buffer execution failed")

    monkeypatch.setattr(mx, "synchronize", fail)


@pytest.mark.parametrize(
    "run",
    [
        lambda runtime, prompt: runtime.activations([prompt]),
        lambda runtime, prompt: runtime.generate(prompt),
    ],
    ids=["activations", "generate"],
)
def test_a_command_that_failed_unseen_is_a_refusal_at_the_end(
    tmp_path: Path, mlx, failing_late, run
):
    runtime = ster.load(write_checkpoint(tmp_path).directory, device=mlx)
    with pytest.raises(DeviceError, match="failed while it computed"):
        run(runtime, text([3, 4]))


def test_what_breaks_a_run_off_counts_more_than_what_failed_unseen(
    tmp_path: Path, mlx, failing_late
):
    session = ster.load(write_checkpoint(tmp_path).directory, device=mlx)._session
    plan = session.plan([[3, 4]], 3, repeats=True)
    with pytest.raises(KeyboardInterrupt), session.open(plan):
        raise KeyboardInterrupt


def test_the_limit_of_the_buffer_cache_is_given_back_when_the_last_run_ends(
    tmp_path: Path, mlx, monkeypatch
):
    # Other tests leave decoders open.
    monkeypatch.setattr(
        "ster.decoder.mlx.decoder.buffer_cache", ProcessLimit(mx.set_cache_limit)
    )
    made = write_checkpoint(tmp_path)
    before = mx.set_cache_limit(123_456_789)
    try:
        one, two = (open_decoder(made, mlx, keep=False) for _ in range(2))
        assert mx.set_cache_limit(1 << 30) >= 1 << 28
        one.close()
        assert mx.set_cache_limit(1 << 30) == 1 << 30
        two.close()
        assert mx.set_cache_limit(before) == 123_456_789
    finally:
        mx.set_cache_limit(before)


def test_no_product_is_a_command_that_meets_the_watchdog():
    assert MAX_PRODUCT <= 1 << 36


@pytest.mark.parametrize("known", ["metal", "cuda"])
def test_a_gpu_counts_its_own_memory_and_not_the_hosts(monkeypatch, known):
    sizes = {
        "metal": {"max_recommended_working_set_size": 11_000, "memory_size": 16_000},
        "cuda": {"free_memory": 9_000, "total_memory": 16_000},
    }
    monkeypatch.setattr(mx, "device_info", lambda device: sizes[known])
    monkeypatch.setattr(mx, "get_active_memory", lambda: 2_000)
    memory = device_memory(known)
    assert (memory.held, memory.limit) == (2_000, 11_000)
