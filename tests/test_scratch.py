"""Memory that is used again: by name and by thread, and let go at the end of a run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import ster
from ster.decoder.numpy.decoder import NumpyDecoder
from ster.decoder.numpy.scratch import Scratch
from ster.decoder.numpy.weights import NumpyWeights
from tests.checkpoints import random_ids, text, write_checkpoint
from tests.conformance.compare import assert_close, tolerance


def place(array: np.ndarray) -> int:
    return array.ctypes.data


def test_a_name_has_one_place_as_long_as_it_is_large_enough():
    scratch = Scratch()
    large, small = scratch("a", 4, 6), scratch("a", 3, 5)
    assert (large.shape, small.shape) == ((4, 6), (3, 5))
    assert small.dtype == np.float32
    assert small.flags.c_contiguous
    assert place(small) == place(large)
    assert place(scratch("b", 4, 6)) != place(large)
    assert scratch("a", 100).shape == (100,)
    assert scratch("a", 4, dtype=np.dtype(np.float16)).dtype == np.float16


def test_columns_lie_one_after_the_other():
    rows = Scratch().columns("a", 5, 3)
    assert rows.shape == (5, 3)
    assert rows.flags.f_contiguous


def test_threads_do_not_share():
    scratch = Scratch()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(scratch, "a", 10).result(60)
    assert not np.shares_memory(scratch("a", 10), other)


def test_what_is_cleared_lives_on_where_it_is_used():
    scratch = Scratch()
    used = scratch("a", 10)
    used[:] = 7
    scratch.clear()
    scratch("a", 10)[:] = 8
    assert (used == 7).all()


def test_runs_at_once_do_not_disturb_each_other(tmp_path):
    """They share the blocks that were kept, each with memory of its own."""
    runtime = ster.load(write_checkpoint(tmp_path).directory)
    sets = [[text(random_ids(150, seed=9 * n + i)) for i in range(4)] for n in range(4)]
    alone = [runtime.activations(prompts).array for prompts in sets]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            together = pool.map(lambda p: runtime.activations(p).array, sets)
            for rows, expected in zip(together, alone, strict=True):
                # BLAS has one thread while another run spreads its work, and may
                # round otherwise.
                assert_close(rows, expected, tolerance("cpu", "f32"))


def test_kept_weights_hold_no_scratch_after_a_run(tmp_path, monkeypatch):
    decoders: list[NumpyDecoder] = []
    close = NumpyDecoder.close

    def noted(decoder: NumpyDecoder) -> None:
        decoders.append(decoder)
        assert vars(decoder._weights.scratch._held)
        close(decoder)

    monkeypatch.setattr(NumpyDecoder, "close", noted)
    runtime = ster.load(write_checkpoint(tmp_path).directory)
    runtime.activations(["ab", "abc"])
    runtime.generate("ab", max_new_tokens=2)
    runtime.score_responses([text([3, 4, 5])])
    assert len(decoders) == 3
    assert not any(vars(each._weights.scratch._held) for each in decoders)


@pytest.mark.parametrize("run", ["activations", "generate"])
def test_a_run_that_is_broken_off_holds_no_scratch(tmp_path, monkeypatch, run):
    runtime = ster.load(write_checkpoint(tmp_path).directory)
    runtime.generate("ab", max_new_tokens=1)
    weights = runtime._session._weights
    assert isinstance(weights, NumpyWeights)

    def interrupt(*_: object) -> None:
        assert vars(weights.scratch._held)
        raise KeyboardInterrupt

    monkeypatch.setattr(NumpyDecoder, "rows", interrupt)
    monkeypatch.setattr(NumpyDecoder, "unembed", interrupt)
    with pytest.raises(KeyboardInterrupt):
        getattr(runtime, run)(["ab"] if run == "activations" else "ab")
    assert runtime._session._weights is weights
    assert weights.held_bytes > 0
    assert not vars(weights.scratch._held)
